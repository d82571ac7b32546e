"""The planted bugs of Paxos that a cluster of Scalog shows."""

from __future__ import annotations

from tests.log.paxos import bugs
from tests.sim.planted_paxos import bugs_of_paxos

PLANTED = bugs_of_paxos(
    bugs.forget_values_in_a_promise,
    bugs.need_too_few_promises,
    bugs.skip_a_slot_with_a_snapshot,
    bugs.vote_with_an_empty_disk,
    bugs.join_without_the_values,
)
