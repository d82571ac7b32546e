"""Names are text of a limited size, with the same errors for all that have one."""

from __future__ import annotations

import pytest

import logdb
from logdb.store.limits import check_name


@pytest.mark.parametrize("name", ["", "é" * 201, "a\ud800"])
def test_a_name_has_a_size_and_an_encoding(name: str) -> None:
    with pytest.raises(ValueError, match="the name of a pin must"):
        check_name("a pin", name, 400)
    check_name("a pin", "é" * 200, 400)


@pytest.mark.parametrize("name", ["", "a\ud800", b"bytes"])
def test_logs_consumers_tables_and_pins_refuse_it(name: str) -> None:
    with logdb.open(":memory:") as db:
        calls = {
            "a log": lambda: db.log(name),
            "a consumer": lambda: db.log("a").consumer(name),
            "a table": lambda: db.table(name, key=int, value="json"),
            "a pin": lambda: db.pin(name, db.put(b"k", b"v")),
        }
        for what, call in calls.items():
            with pytest.raises((TypeError, ValueError), match=f"the name of {what} must"):
                call()
