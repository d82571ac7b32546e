"""Invalid arguments are rejected by all methods in the same way: before any effect, and with the argument's name."""

from __future__ import annotations

import datetime as dt
import linecache
import math
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import pytest

import logdb
import logdb.aio
from tests.conformance import databases

WORLDS = {name: databases.WORLDS[name] for name in (*databases.FEW, "asyncio", "served asyncio")}
EAST, WEST = dt.timezone(dt.timedelta(hours=23)), dt.timezone(-dt.timedelta(hours=23))
NO_KEYS: list[Any] = [None, "k", 1, True, bytearray(b"k"), memoryview(b"k"), [b"k"], {}, b""]
NO_NEW_KEYS: list[Any] = [*NO_KEYS, bytes(8_193)]
NO_VALUES: list[Any] = [None, "v", 1, bytearray(b"v"), [], 1.5]
NO_LABELS: list[Any] = [None, b"", b"l", 0, 1, [], "\ud800", "l" * 1_025]
NO_FLAGS: list[Any] = [None, 0, 1, "no", [], object()]
NO_ITERABLES: list[Any] = [None, 1, 1.5, True, len, "k", "", b"k", b"", bytearray(b"k")]
NO_VERSIONS: list[Any] = [
    *("1", "", b"", True, 1.0, math.nan, math.inf, [], {}, dt.datetime(2026, 1, 1)),
    *(-1, 1 << 64, 1 << 70, 10**400),
]
NO_LIMITS: list[Any] = ["1", True, 1.0, -1, math.inf, [], 1 << 63, 10**400]
NO_TIMES: list[Any] = [
    *("2026-01-01", True, [], dt.date(2026, 1, 1), dt.timedelta(1), 1j),
    *(math.nan, math.inf, -math.inf),
    *(dt.datetime.min.replace(tzinfo=EAST), dt.datetime.max.replace(tzinfo=WEST)),
]
NO_WAITS: list[Any] = ["1", True, [], -1, -0.5, math.nan, -math.inf, 1j, dt.timedelta(1)]
NO_FUNCTIONS: list[Any] = ["f", 1, b"", [], object()]
NO_ITEMS: list[Any] = [None, 1, "k", b"k", [], [(b"k", b"v")], {b"k"}, iter(()), {"k": b"v"}, {b"k": 1}, {b"": b"v"}]
NO_CONDITIONS: list[Any] = [[None], [b"k"], [(1, b"k", b"v")], {"k": 1}]
NO_ATTEMPTS: list[Any] = [None, "1", 1.0, True, 0, -1]
NO_PINS: list[Any] = [None, b"p", 1, True, [], {}, "", "p" * 401, "\ud800"]
NO_IDS: list[Any] = [None, 1, b"", [], "", "x", "00000000000000aa", "00000000000000aa-" + "9" * 20, "\ud800"]
NO_PAIRS: list[Any] = [None, b"ab", "ab", 1, (), (b"a",), (b"a", b"b", b"c"), {b"a": b"b"}]
NO_BOUNDS: list[Any] = ["k", 1, True, bytearray(b"k"), [b"k"], bytes(8_194)]

Call = Callable[[Any, Any], Any]


def some(items: Any) -> list[Any]:
    return list(islice(items, 2))


def in_transaction(call: Call, **options: Any) -> Call:
    def called(db: Any, argument: Any) -> None:
        with db.transaction(**options) as txn:
            call(txn, argument)

    return called


def in_snapshot(call: Call) -> Call:
    return lambda db, argument: call(db.at(1), argument)


def writes(txn: Any, _: Any = None) -> None:
    txn.put(b"body", b"v")


READS: list[tuple[str, str, Call, Sequence[Any]]] = [
    ("get", "key", lambda db, key: db.get(key), NO_KEYS),
    ("[]", "key", lambda db, key: db[key], NO_KEYS),
    ("in", "key", lambda db, key: key in db, NO_KEYS),
    ("multi_get", "keys", lambda db, keys: db.multi_get(keys), NO_ITERABLES),
    ("multi_get", "key", lambda db, key: db.multi_get([b"k", key]), NO_KEYS),
    ("scan", "start", lambda db, start: some(db.scan(start)), NO_BOUNDS),
    ("scan", "end", lambda db, end: some(db.scan(None, end)), NO_BOUNDS),
    ("scan", "", lambda db, prefix: some(db.scan(prefix=prefix)), NO_BOUNDS),
    ("scan", "prefix", lambda db, start: some(db.scan(start, prefix=b"k")), [b"a", b""]),
    ("scan", "limit", lambda db, limit: some(db.scan(limit=limit)), NO_LIMITS),
    ("scan", "reverse", lambda db, flag: some(db.scan(reverse=flag)), NO_FLAGS),
    ("multi_scan", "ranges", lambda db, ranges: db.multi_scan(ranges), NO_ITERABLES),
    ("multi_scan", "ranges", lambda db, bounds: db.multi_scan([(b"a", b"b"), bounds]), NO_PAIRS),
    ("multi_scan", "start", lambda db, start: db.multi_scan([(start, None)]), NO_BOUNDS),
    ("multi_scan", "end", lambda db, end: db.multi_scan([(b"a", b"b"), (None, end)]), NO_BOUNDS),
    ("multi_scan", "limit", lambda db, limit: db.multi_scan([], limit=limit), NO_LIMITS),
    ("multi_scan", "reverse", lambda db, flag: db.multi_scan([], reverse=flag), NO_FLAGS),
]
"""(verb, the name in its error, how it is called, invalid arguments), for databases, snapshots, transactions."""
CASES: list[tuple[str, str, Call, Sequence[Any]]] = [
    *READS,
    *((f"transaction.{verb}", about, in_transaction(call), bad) for verb, about, call, bad in READS),
    *((f"snapshot.{verb}", about, in_snapshot(call), bad) for verb, about, call, bad in READS),
    ("history", "key", lambda db, key: some(db.history(key)), NO_KEYS),
    ("snapshot.history", "key", in_snapshot(lambda at, key: some(at.history(key))), NO_KEYS),
    ("at", "version", lambda db, version: db.at(version), NO_VERSIONS),
    ("at", "time", lambda db, time: db.at(time=time), NO_TIMES),
    ("at", "version or a time", lambda db, time: db.at(1, time=time), [0, math.nan]),
    ("time_of", "version", lambda db, version: db.time_of(version), [None, *NO_VERSIONS]),
    ("put", "key", lambda db, key: db.put(key, b"v"), NO_NEW_KEYS),
    ("put", "value", lambda db, value: db.put(b"k", value), NO_VALUES),
    ("put", "label", lambda db, label: db.put(b"k", b"v", label=label), NO_LABELS),
    ("[]=", "key", lambda db, key: db.__setitem__(key, b"v"), NO_NEW_KEYS),
    ("[]=", "value", lambda db, value: db.__setitem__(b"k", value), NO_VALUES),
    ("del", "key", lambda db, key: db.__delitem__(key), NO_NEW_KEYS),
    ("delete", "key", lambda db, key: db.delete(key), NO_NEW_KEYS),
    ("delete", "label", lambda db, label: db.delete(b"k", label=label), NO_LABELS),
    ("multi_put", "", lambda db, items: db.multi_put(items), NO_ITEMS),
    ("multi_put", "label", lambda db, label: db.multi_put({b"k": b"v"}, label=label), NO_LABELS),
    ("test_and_multi_put", "conditions", lambda db, argument: db.test_and_multi_put(argument, {}), NO_ITERABLES),
    ("test_and_multi_put", "condition", lambda db, argument: db.test_and_multi_put(argument, {}), NO_CONDITIONS),
    ("test_and_multi_put", "", lambda db, items: db.test_and_multi_put([], items), NO_ITEMS),
    ("test_and_multi_put", "label", lambda db, label: db.test_and_multi_put([], {}, label=label), NO_LABELS),
    ("transaction", "label", lambda db, label: in_transaction(writes, label=label)(db, None), NO_LABELS),
    ("transaction", "read_only", lambda db, flag: in_transaction(writes, read_only=flag)(db, None), NO_FLAGS),
    ("transaction", "guard_writes", lambda db, flag: in_transaction(writes, guard_writes=flag)(db, None), NO_FLAGS),
    ("transaction.put", "key", in_transaction(lambda txn, key: txn.put(key, b"v")), NO_NEW_KEYS),
    ("transaction.put", "value", in_transaction(lambda txn, value: txn.put(b"k", value)), NO_VALUES),
    ("transaction.delete", "key", in_transaction(lambda txn, key: txn.delete(key)), NO_NEW_KEYS),
    ("transaction.[]=", "key", in_transaction(lambda txn, key: txn.__setitem__(key, b"v")), NO_NEW_KEYS),
    ("transaction.del", "key", in_transaction(lambda txn, key: txn.__delitem__(key)), NO_NEW_KEYS),
    ("transaction.multi_put", "", in_transaction(lambda txn, items: txn.multi_put(items)), NO_ITEMS),
    ("run", "function", lambda db, body: db.run(body), [None, *NO_FUNCTIONS]),
    ("run", "label", lambda db, label: db.run(writes, label=label), NO_LABELS[1:]),
    ("run", "attempts", lambda db, count: db.run(writes, attempts=count), NO_ATTEMPTS),
    ("transactional", "function", lambda _, body: logdb.transactional(body), NO_FUNCTIONS),
    ("transactional", "label", lambda _, label: logdb.transactional(writes, label=label), NO_LABELS[1:]),
    ("transactional", "attempts", lambda _, count: logdb.transactional(writes, attempts=count), NO_ATTEMPTS),
    ("outcome", "transaction id", lambda db, txn_id: db.outcome(txn_id), NO_IDS),
    ("outcome", "settle", lambda db, flag: db.outcome("00000000000000aa-1", settle=flag), NO_FLAGS),
    ("watch", "", lambda db, prefix: some(db.watch(prefix, timeout=0)), NO_BOUNDS),
    ("watch", "keys", lambda db, keys: some(db.watch(keys=keys, timeout=0)), NO_ITERABLES[1:]),
    ("extend", "values", lambda db, values: db.log("l").extend(values), NO_ITERABLES),
    ("watch", "key", lambda db, key: some(db.watch(keys=[key], timeout=0)), NO_KEYS),
    ("watch", "version", lambda db, since: some(db.watch(since=since, timeout=0)), NO_VERSIONS),
    ("watch", "timeout", lambda db, timeout: some(db.watch(since=0, timeout=timeout)), NO_WAITS),
    ("pin", "pin", lambda db, name: db.pin(name), NO_PINS),
    ("pin", "version", lambda db, version: db.pin("p", version), NO_VERSIONS),
    ("unpin", "pin", lambda db, name: db.unpin(name), NO_PINS),
    ("compact", "version", lambda db, before: db.compact(before), NO_VERSIONS),
    ("compact", "progress", lambda db, progress: db.compact(0, progress=progress), NO_FUNCTIONS),
    ("checkpoint", "progress", lambda db, progress: db.checkpoint(progress=progress), NO_FUNCTIONS),
    ("equals", "key", lambda _, key: logdb.equals(key, b"v"), NO_NEW_KEYS),
    ("equals", "value", lambda _, value: logdb.equals(b"k", value), NO_VALUES),
    ("absent", "key", lambda _, key: logdb.absent(key), NO_NEW_KEYS),
    ("exists", "key", lambda _, key: logdb.exists(key), NO_NEW_KEYS),
    ("version_equals", "version", lambda _, version: logdb.version_equals(b"k", version), [None, *NO_VERSIONS]),
    ("version_less", "version", lambda _, version: logdb.version_less(b"k", version), [None, *NO_VERSIONS]),
    ("version_greater", "version", lambda _, version: logdb.version_greater(b"k", version), [None, *NO_VERSIONS]),
]  # fmt: skip


def unclear_error(call: Callable[[], Any], about: str) -> str | None:
    """None if the call raised an error of LogDB that names the argument, otherwise its result or other error."""
    try:
        answer = call()
    except (logdb.LogDBError, TypeError, ValueError) as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        assert trace is not None
        line = linecache.getline(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        if "raise " in line and "/logdb/" in trace.tb_frame.f_code.co_filename and about in str(error):
            return None
        return f"{error!r} at {line.strip()}"
    except Exception as error:
        return repr(error)
    return f"answered {answer!r}"


def test_invalid_arguments(world: Any) -> None:
    db = world.db
    db.put(b"k", b"v")
    before = db.version
    unclear = [
        (verb, bad if len(repr(bad)) < 100 else type(bad), how)
        for verb, about, call, all_bad in CASES
        for bad in all_bad
        if (how := unclear_error(lambda: call(db, bad), about)) is not None
    ]
    assert not unclear, "\n".join(map(repr, unclear))
    assert db.version == before


def test_arguments_at_the_limits(world: Any) -> None:
    """The largest and smallest valid arguments are accepted."""
    db = world.db
    db.put(b"k", b"v", label="")
    assert db.multi_get(()) == db.multi_get({}) == {}
    assert db.multi_get(key for key in [b"k"]) == {b"k": b"v"}
    assert db.multi_put({}) == db.version
    assert some(db.watch(keys=(), since=0, timeout=0)) == []
    assert next(db.watch(since=0, timeout=math.inf)).changes == {b"k": b"v"}
    assert next(db.watch(since=0, timeout=1e300)).changes == {b"k": b"v"}
    for time in (-(10**400), -1e300, -1e9, -1, 0, 0.5, dt.datetime(1, 1, 2), dt.datetime(1950, 1, 1, tzinfo=dt.UTC)):
        assert db.at(time=time).version == 0
    for time in (1e11, 253_402_300_799, 1 << 63, 1e300, 10**400, dt.datetime.max.replace(tzinfo=dt.UTC)):
        with pytest.raises(logdb.FutureVersion, match="of the time"):
            db.at(time=time)
    for version in (1 << 40, (1 << 63) - 1):
        with pytest.raises(logdb.FutureVersion, match=str(version)):
            db.at(version)
    assert db.time_of(0) is None


def test_a_coroutine_function_as_a_body(world: Any) -> None:
    """A blocking database would not await the coroutine, so it would commit nothing."""
    db = world.db

    async def body(txn: Any) -> None:
        txn.put(b"body", b"v")

    before = db.version
    with pytest.raises(TypeError, match="async"):
        db.run(body)
    assert db.version == before
