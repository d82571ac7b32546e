"""The limits of the fields of messages."""

from __future__ import annotations

from typing import Any

import pytest

from logdb.log.corfu.messages import Entry, Pull, Pulled, StreamPulled, TokenRequest, WriteRequest
from logdb.log.corfu.projection import MAX_TOKENS, gsn_at
from logdb.log.corfu.wire import MAX_PULL_BYTES, WIRE
from logdb.log.requests import MAX_STREAMS
from logdb.wire.splitting import split

SIXTEEN = tuple([(stream, 0) for stream in range(1, MAX_STREAMS + 1)])


@pytest.mark.parametrize(
    ("kind", "field", "allowed", "refused"),
    [
        (Pull, "max_bytes", MAX_PULL_BYTES, MAX_PULL_BYTES + 1),
        (Pull, "step", 1, 0),
        (TokenRequest, "places", (0,) * MAX_TOKENS, (0,) * (MAX_TOKENS + 1)),
        (TokenRequest, "streams", ((0, 1),) * MAX_TOKENS * MAX_STREAMS, ((0, 1),) * (MAX_TOKENS * MAX_STREAMS + 1)),
        (WriteRequest, "streams", SIXTEEN, (*SIXTEEN, (MAX_STREAMS + 1, 0))),
        (WriteRequest, "streams", ((1, 0), (2, 0)), ((1, 0), (1, 2))),
    ],
)
def test_a_field_has_a_limit(kind: type, field: str, allowed: Any, refused: Any) -> None:
    for convert in WIRE.field_converters[kind, field]:
        assert convert(allowed) == allowed
        with pytest.raises(ValueError, match=kind.__name__):
            convert(refused)


def test_a_response_is_split_between_its_entries_even_if_all_their_records_are_trimmed() -> None:
    """One that named a million trimmed records was too large, and its reader requested it again and again."""
    entries = tuple([Entry(position, 9, 7, position, 1) for position in (3, 5, 6, 8)])
    gsns = tuple([gsn_at(entry.position) for entry in entries])
    assert split(Pulled(1, 9, entries, gsns)) == [Pulled(1, 9, entries[:2], gsns[:2], records=[])]
    assert split(StreamPulled(1, 9, entries, gsns)) == [StreamPulled(1, 6, entries[:2], gsns[:2], records=[])]
    assert split(Pulled(1, 9, entries[:1], gsns[:1])) == []
