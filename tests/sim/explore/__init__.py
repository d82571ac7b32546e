"""The protocol as an explicit-state check: a breadth-first search over the cores themselves.

The simulator draws long runs at random; this tries *every* order in which a few things can happen. A state is what all
nodes are (each core with its journals and timers), the messages under way and what the environment may still do. From
each state every message may be delivered, every dirty disk synced, every node killed and started again (with none or
all of what it had not synced), a timer rung, a client's append sent, a shard finalized, as far as the budget goes. A
message that is never delivered is one that was lost, since every state is checked, not only the last ones.

Two states are one when all cores hold equal values, whatever came in which order (`machine.frozen`). What is drawn at
random is left out, and so is a second copy of a message that is under way already.

In every state: the invariants of the core that has moved; all acknowledgements ever given agree, and each rests on a
quorum of durable copies; replicas of the ordering layer that have applied as much hold the same; members of a shard
place the same records at the same GSNs.
"""
