"""A simulated cluster has the same events whether or not its messages are encoded as bytes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from logdb.log.engine import ENGINES
from logdb.wire.envelopes import Envelope, pack, unpack
from tests.sim.network import Network
from tests.sim.run import simulate

FEWEST_KINDS = 10
"""A run exchanges messages of at least this many kinds."""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", [3, 4])
def test_encoding_messages_does_not_change_a_simulation(
    seed: int, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = simulate(seed, engine)
    kinds: Counter[str] = Counter()
    carry = Network.send

    def send(network: Network, sender: str, to: str, message: Any) -> None:
        (packet,) = pack(sender, to, [message])
        mail = unpack(packet)
        assert isinstance(mail, Envelope)
        assert mail[:2] == (sender, to)
        kinds[type(message).__name__] += 1
        carry(network, sender, to, mail.messages[0])

    monkeypatch.setattr(Network, "send", send)
    over_the_wire = simulate(seed, engine)
    assert expected.failure == ""
    assert over_the_wire == expected
    assert len(kinds) >= FEWEST_KINDS
