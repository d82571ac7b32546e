"""Pauses between attempts."""

from __future__ import annotations

from logdb.transport.backoff import Backoff


def test_pauses_double_up_to_the_maximum_and_can_be_reset() -> None:
    backoff = Backoff(1, 8)
    bounds = [1, 2, 4, 8, 8]
    pauses = [backoff.next_s() for _ in bounds]
    assert all(bound / 2 <= pause <= bound for pause, bound in zip(pauses, bounds, strict=True)), pauses
    backoff.reset()
    assert backoff.next_s() <= 1


def test_the_maximum_may_be_less_than_the_first_pause() -> None:
    assert Backoff(1, 0.01).next_s() <= 0.01
