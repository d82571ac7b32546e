"""Errors: each can go to another process, as those of `multiprocessing` and Spark do."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from logdb import errors
from logdb.log.contract import NotOfThisShard, Trimmed

MADE: list[errors.LogDBError] = [
    errors.ConflictError(b"k", 7, "other", 5, in_range=True),
    errors.NotANumber(b"k"),
    errors.DatabaseInUse("data", "process 1"),
    errors.OutcomeUnknown("1-2", "the server was killed"),
    errors.VersionTrimmed(3, 5),
    errors.FutureVersion(9, 5),
    errors.KeyTooLarge(10, 5, "a key"),
    errors.ValueTooLarge(10, 5),
    errors.TransactionTooLarge(10, 5),
    errors.DatabaseClosed("data"),
    errors.UnsupportedFormat("data", 3, 2),
    errors.ProtocolMismatch("host:1", 2, "0.2", 1, "0.1"),
    errors.Corruption("data/log", 12, "it does not match its checksum"),
    NotOfThisShard(3, 1),
    Trimmed(3, 5),
    errors.IndexUnavailable("users", "by name"),
    errors.UniqueViolation("users", "by name", ("Ada",), (1,), (2,)),
    errors.TableMismatch("why"),
    errors.WriterFenced("orders", 1, 2),
    *(
        kind("why")
        for kind in (errors.Unavailable, errors.ReadOnly, errors.AccessDenied, errors.NotADatabase, errors.BackupError)
    ),
    errors.ColdTierError("why"),
]


def kinds(kind: type[errors.LogDBError] = errors.LogDBError) -> Iterator[type[errors.LogDBError]]:
    for below in kind.__subclasses__():
        if below.__module__ in ("logdb.errors", "logdb.log.contract", "logdb.log.segments.store"):
            yield below
            yield from kinds(below)


@pytest.mark.parametrize("error", MADE, ids=lambda error: type(error).__name__)
def test_an_error_arrives_as_it_was(error: errors.LogDBError) -> None:
    found = pickle.loads(pickle.dumps(error))
    assert (type(found), str(found), vars(found)) == (type(error), str(error), vars(error))


def test_all_kinds_are_tried() -> None:
    assert {type(error) for error in MADE} == set(kinds()) - {errors.LimitExceeded}
