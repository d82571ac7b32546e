"""`logdb named-log`: appending to named logs, and reading them."""

from __future__ import annotations

from pathlib import Path

import logdb

from .conftest import Run, documents


def test_entries_are_appended_and_read(run: Run) -> None:
    assert run("named-log", "append", "orders", "two apples", "a pear").stdout == "1.0\n1.1\n"
    assert run("named-log", "append", "orders", "a plum", "--txn-id", 7).stdout == "2.0\n"
    assert run("named-log", "list").stdout == "orders\n"
    assert run("named-log", "stats", "orders").stdout == "3\t22\t1.0\t2.0\t7\n"
    assert documents(run("named-log", "stats", "x", "--json")) == [
        {"entries": 0, "size_bytes": 0, "first": None, "last": None, "last_txn_id": None}
    ]
    assert run("named-log", "read", "orders").stdout == "1.0\t\ttwo apples\n1.1\t\ta pear\n2.0\t7\ta plum\n"
    assert run("named-log", "read", "orders", "--after", "1.0", "--limit", 1).stdout == "1.1\t\ta pear\n"
    assert run("named-log", "read", "orders", "--reverse", "--limit", 1).stdout == "2.0\t7\ta plum\n"
    assert run("named-log", "read", "orders", "--from-txn-id", 3, "--hex").stdout == f"2.0\t7\t{b'a plum'.hex()}\n"
    found = documents(run("named-log", "follow", "orders", "--after", "1.1", "--timeout", 0, "--json"))
    assert found == [{"position": "2.0", "txn_id": 7, "value": "a plum"}]
    assert (
        run("named-log", "read", "orders", "--since", "2000-01-01T00:00:00Z", "--limit", 1).stdout
        == "1.0\t\ttwo apples\n"
    )


def test_a_log_is_truncated_and_deleted(run: Run) -> None:
    run("named-log", "append", "orders", "1", "2", "3")
    assert run("named-log", "truncate", "orders", "1.2").stdout == "version 2\n"
    assert run("named-log", "read", "orders").stdout == "1.2\t\t3\n"
    assert documents(run("named-log", "delete", "orders", "--json")) == [{"version": 3}]
    assert run("named-log", "list").stdout == ""


def test_what_is_refused(run: Run) -> None:
    run("named-log", "append", "orders", "1", "--txn-id", 5)
    assert "4 comes after 5" in run("named-log", "append", "orders", "2", "--txn-id", 4, code=2).stderr
    assert "not a position" in run("named-log", "truncate", "orders", "first", code=2).stderr
    assert "give one of" in run("named-log", "read", "orders", "--after", "1.0", "--from-txn-id", 1, code=2).stderr


def test_consumers_are_listed_reset_and_deleted(run: Run, db: Path) -> None:
    run("named-log", "append", "orders", "1", "2", "3", "--key", "k")
    with logdb.open(db) as opened:
        assert [entry.key for entry in opened.log("orders").read()] == [b"k"] * 3
        opened.log("orders").consumer("billing").run(lambda txn, entry: None, limit=2)
    row = {"name": "billing", "partition": 0, "position": "1.1", "lag": 1, "owner": None}
    assert documents(run("named-log", "consumer", "list", "orders", "--json")) == [row]
    assert run("named-log", "consumer", "list", "orders").stdout == "billing\t0\t1.1\t1\t\n"
    assert run("named-log", "consumer", "reset", "orders", "billing").stdout.startswith("version ")
    found = documents(run("named-log", "consumer", "list", "orders", "--json"))
    assert found == [{**row, "position": None, "lag": 3}]
    run("named-log", "consumer", "reset", "orders", "billing", "--after", "1.0")
    assert run("named-log", "consumer", "list", "orders").stdout == "billing\t0\t1.0\t2\t\n"
    run("named-log", "consumer", "reset", "orders", "billing", "--to-end", "--json")
    assert run("named-log", "consumer", "list", "orders").stdout == "billing\t0\t1.2\t0\t\n"
    run("named-log", "consumer", "reset", "orders", "billing", "--since", "2000-01-01T00:00:00Z")
    assert "one of" in run("named-log", "consumer", "reset", "orders", "x", "--after", "1.0", "--to-end", code=2).stderr
    assert "version" in documents(run("named-log", "consumer", "delete", "orders", "billing", "--json"))[0]
    assert run("named-log", "consumer", "list", "orders").stdout == ""


def test_the_retention_of_a_log_is_printed_and_changed(run: Run) -> None:
    assert "does not exist" in run("named-log", "retention", "orders", code=3).stderr
    run("named-log", "append", "mail", "1")
    assert run("named-log", "retention", "orders").stdout == "\t\n"
    assert run("named-log", "retention", "orders", "--age", "1.5h", "--size", "2MiB").stdout == "5,400.0\t2097152\n"
    assert documents(run("named-log", "retention", "orders", "--json")) == [{"age_s": 5400.0, "size_bytes": 2 << 20}]
    assert run("named-log", "retention", "orders", "--size", "20B").stdout == "\t20\n"
    run("named-log", "append", "orders", "ten bytes.", "ten bytes,", "ten bytes!")
    assert run("sweep").stdout == "0 expired keys deleted, 1 named log truncated\n"
    assert documents(run("sweep", "--json")) == [{"expired_keys": 0, "truncated_logs": 0}]
    assert run("named-log", "stats", "orders").stdout == "2\t20\t4.1\t4.2\t\n"
    assert run("named-log", "retention", "orders", "--none").stdout == "\t\n"
    assert "not both" in run("named-log", "retention", "orders", "--none", "--age", "1d", code=2).stderr
    for wrong in ("1 day", "day", "1y", "-1d"):
        assert "not a time (such as" in run("named-log", "retention", "orders", "--age", wrong, code=2).stderr
    assert "not a size (such as" in run("named-log", "retention", "orders", "--size", "1m", code=2).stderr
    assert "size_bytes must be" in run("named-log", "retention", "orders", "--size", "0", code=2).stderr
