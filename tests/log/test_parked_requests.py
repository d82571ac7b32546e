"""Requests that a server parks until the log has reached them: which are due when."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest

from logdb.log.parked_requests import ParkedRequests


class Wanted(NamedTuple):
    request: int
    at: int
    is_urgent: bool = False


@pytest.mark.parametrize("seed", range(20))
def test_they_are_those_of_a_plain_list(seed: int) -> None:
    rng = Random(seed)
    parked = ParkedRequests[Wanted](4, lambda wanted: wanted.is_urgent)
    model: dict[tuple[str, int], Wanted] = {}
    for _ in range(400):
        sender, number = rng.choice("abc"), rng.randrange(6)
        kind = rng.randrange(10)
        if kind < 6:
            wanted = Wanted(number, rng.randrange(100), rng.random() < 0.5)
            is_full = (sender, number) not in model and sum(of == sender for of, _ in model) == 4
            assert parked.park(wanted.at, wanted, sender) is not is_full
            if not is_full:
                model[sender, number] = wanted
        elif kind < 8:
            reached = rng.randrange(40)
            found = parked.take(reached)
            assert [wanted.at for wanted, _ in found] == sorted(wanted.at for wanted, _ in found)
            due = {key: wanted for key, wanted in model.items() if wanted.at <= reached}
            assert {(sender, wanted.request): wanted for wanted, sender in found} == due
            assert len(found) == len(due)
            for key in due:
                del model[key]
        elif kind == 8:
            assert parked.remove(sender, number) == model.pop((sender, number), None)
        else:
            gone = rng.choice([sender, None]) if rng.random() < 0.3 else sender
            found = parked.remove_all(gone)
            kept = {key: wanted for key, wanted in model.items() if gone not in (None, key[0])}
            assert len(found) == len(model) - len(kept)
            model = kept
        parked.check()
        assert {(of, wanted.request): wanted for wanted, of in parked} == model
        assert len(parked) == len(model)
        assert parked.marked == sum(wanted.is_urgent for wanted in model.values())
