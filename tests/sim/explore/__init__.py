"""The protocol as an explicit-state check: a breadth-first search over the cores themselves.

The simulator draws long runs at random; this tries *every* order in which a few things can happen. A state consists of
all nodes (each core with its journals and timers), the messages under way and the remaining moves of the environment.
From each state every message may be delivered, every dirty disk synced, every node killed and started again (with none
or all of its unsynced records), a timer fired, a client's append sent, a shard finalized, within the budget. A message
that is never delivered stands for a lost one, since every state is checked, not only the last ones.

Two states are equal if all cores have equal values, regardless of the order of events (`machine.frozen`). Random
generators are left out, and so is a second copy of a message that is already under way.

Checked in every state: the invariants of the core that has handled an event; all acknowledgements agree, and each has a
quorum of durable copies; ordering replicas that have applied the same slot have the same state; members of a shard
place the same records at the same GSNs.
"""
