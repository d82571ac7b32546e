"""Addresses as people write them."""

from __future__ import annotations

from typing import Any

import pytest

from logdb.system.addresses import endpoints_of, joined, parsed


@pytest.mark.parametrize("text", ["", "127.0.0.1", "localhost:", ":7401", "a:b", "a:1,,b:2", "a:70000", "a:0"])
def test_malformed_endpoints(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an address|has no port"):
        endpoints_of(text)


@pytest.mark.parametrize("endpoints", [None, 7400, b"a:1", [b"a:1"], [("a", 1)]])
def test_endpoints_that_are_not_text(endpoints: Any) -> None:
    with pytest.raises(TypeError, match="endpoints must be a str"):
        endpoints_of(endpoints)


def test_endpoints_keep_their_order_without_repetitions() -> None:
    assert endpoints_of("b:2, a:1,b:2") == ["b:2", "a:1"]


@pytest.mark.parametrize("address", ["127.0.0.1:7400", "[::1]:7400", "db.example:1"])
def test_an_address_is_joined_from_its_parts(address: str) -> None:
    assert joined(*parsed(address)) == address
