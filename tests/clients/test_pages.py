"""Several ranges in one call are one request, to a server or a cluster; invalid pages are rejected."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import logdb
from logdb.clients.cluster_backend import ClusterBackend
from logdb.clients.pages import PageRows, RangePage, RangePages, history_pages, scan_pages
from logdb.clients.server_connection import ServerConnection
from logdb.store.ranges import ScanRange
from logdb.wire.database_codec import PAGE_RANGES
from logdb.wire.limits import WireError
from logdb.wire.proto import database_pb2 as pb
from tests.harness.clusters import Cluster
from tests.harness.served import Served


@pytest.fixture(params=["server", "cluster"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[logdb.Database]:
    place: Served | Cluster
    if request.param == "server":
        place = Served(tmp_path / "db")
        address = place.address
    else:
        place = Cluster(tmp_path, storage=1, aggregators=0, mapping=1)
        place.start(1)
        address = place.ordering[0]
    with logdb.connect(address) as db:
        yield db
    place.close()


@pytest.fixture
def requests_sent(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The number of requests that clients sent, by verb."""
    counted: Counter[str] = Counter()
    call, put = ServerConnection.call, ClusterBackend.put

    def calling(self: ServerConnection[Any], request: pb.Request, *args: Any, **options: Any) -> Any:
        counted[request.WhichOneof("verb") or ""] += 1
        return call(self, request, *args, **options)

    def putting(self: ClusterBackend, request: Any, *args: Any) -> Any:
        counted[type(request).__name__] += 1
        return put(self, request, *args)

    monkeypatch.setattr(ServerConnection, "call", calling)
    monkeypatch.setattr(ClusterBackend, "put", putting)
    return counted


def reads_sent(requests_sent: Counter[str]) -> Counter[str]:
    """The requests without leases, which are not answered."""
    verbs = {verb: count for verb, count in requests_sent.items() if verb != "LeaseVersion"}
    return Counter({verb.replace("_", "").lower(): count for verb, count in verbs.items()})


def test_several_ranges_are_one_request(db: logdb.Database, requests_sent: Counter[str]) -> None:
    rows = [(b"%03d" % number, b"v") for number in range(200)]
    db.multi_put(dict(rows))
    ranges = [(b"010", b"020"), (None, b"005"), (b"190", None)]
    expected = [rows[10:20], rows[:5], rows[190:]]
    requests_sent.clear()
    assert db.multi_scan(ranges) == expected
    assert db.multi_scan(ranges, limit=3, reverse=True) == [each[:-4:-1] for each in expected]
    assert reads_sent(requests_sent) == {"multiscan": 2}
    snapshot = db.at()
    requests_sent.clear()
    assert snapshot.multi_scan(ranges) == expected
    assert reads_sent(requests_sent) == {"multiscan": 1}


def test_a_transaction_reads_several_ranges_in_one_request(db: logdb.Database, requests_sent: Counter[str]) -> None:
    db.multi_put({b"%03d" % number: b"v" for number in range(200)})
    requests_sent.clear()
    with db.transaction(read_only=True) as txn:
        assert [len(rows) for rows in txn.multi_scan([(b"01", b"02"), (b"1", None)], limit=30)] == [10, 30]
    assert reads_sent(requests_sent) in ({"multiscan": 1}, {"begin": 1, "multiscan": 1})
    requests_sent.clear()
    with db.transaction(read_only=True) as txn:
        txn.get(b"000")
        requests_sent.clear()
        txn.multi_scan([(b"01", b"02"), (b"1", None)], limit=30)
        assert reads_sent(requests_sent) == {"multiscan": 1}


def test_a_transaction_that_scans_first_takes_its_snapshot_on_the_way(
    db: logdb.Database, requests_sent: Counter[str]
) -> None:
    rows = [(b"%04d" % number, bytes(3_000)) for number in range(800)]
    db.multi_put(dict(rows))
    requests_sent.clear()
    with db.transaction(read_only=True) as txn:
        assert list(txn.scan(b"0100", b"0110")) == rows[100:110]
    assert reads_sent(requests_sent) in ({"scan": 1}, {"begin": 1, "multiscan": 1})
    for reverse, limit in [(False, None), (True, None), (False, 600), (True, 10), (False, 0)]:
        with db.transaction() as txn:
            found = txn.scan(reverse=reverse, limit=limit)
            assert list(found) == (rows[::-1] if reverse else rows)[:limit]
    with pytest.raises(logdb.ConflictError), db.transaction() as txn:
        assert next(iter(txn.scan())) == rows[0]
        txn.put(b"x", b"")
        db.put(b"0000", b"")


def test_own_deletions_cost_one_request_for_all_ranges(db: logdb.Database, requests_sent: Counter[str]) -> None:
    keys = [b"%03d" % number for number in range(200)]
    db.multi_put(dict.fromkeys(keys, b"v"))
    with db.transaction() as txn:
        for key in (*keys[:3], *keys[100:103]):
            txn.delete(key)
        txn.get(b"none")
        requests_sent.clear()
        found = txn.multi_scan([(None, None), (b"050", None), (b"1", None)], limit=2)
        assert [[key for key, _ in rows] for rows in found] == [keys[3:5], keys[50:52], keys[103:105]]
        assert reads_sent(requests_sent) == {"multiscan": 2}


def test_many_ranges_are_requested_in_parts(db: logdb.Database, requests_sent: Counter[str]) -> None:
    keys = [b"%04d" % number for number in range(2 * PAGE_RANGES + 5)]
    db.multi_put({key: key for key in keys[::2]})
    requests_sent.clear()
    found = db.multi_scan([(key, key + b"\0") for key in keys])
    assert found == [[(key, key)] if at % 2 == 0 else [] for at, key in enumerate(keys)]
    assert reads_sent(requests_sent)["multiscan"] in (3, 5)
    assert requests_sent["LeaseVersion"] in (0, 6), "a client of a cluster leases the version between two requests"


def test_ranges_with_long_bounds_are_requested_in_parts(db: logdb.Database, requests_sent: Counter[str]) -> None:
    """One message with all bounds could not be sent."""
    keys = [b"%03d" % number + b"x" * 8_000 for number in range(400)]
    db.multi_put(dict.fromkeys(keys[::40], b"1"))
    requests_sent.clear()
    found = db.multi_scan([(key, key + b"\0") for key in keys])
    assert found == [[(key, b"1")] if at % 40 == 0 else [] for at, key in enumerate(keys)]
    assert reads_sent(requests_sent)["multiscan"] in (1, 7)


# ---- pages

ROW = (b"b", b"1")
RANGES = [ScanRange(b"a", b"c", None), ScanRange(None, None, 2), ScanRange(b"x", None, 0), ScanRange(b"d", b"e", None)]


def test_remaining_rows_are_requested_again() -> None:
    pages = RangePages(RANGES, reverse=False)
    assert pages.left(2) == RANGES[:2]
    assert pages.left(9) == [*RANGES[:2], RANGES[3]]
    pages.take([([ROW], b"b\0"), ([ROW], b"b\0")])
    assert pages.left(9) == [ScanRange(b"b\0", b"c", None), ScanRange(b"b\0", None, 1), RANGES[3]]
    pages.take([([], b"b1"), ([(b"c", b"2")], b"c\0")])
    assert pages.left(9) == [ScanRange(b"b1", b"c", None), RANGES[3]], "the second range has a limit of two rows"
    pages.take([([], None)])
    assert pages.left(9) == [RANGES[3]]
    pages.take([([], None)])
    assert pages.left(9) == []
    assert pages.rows == [[ROW], [ROW, (b"c", b"2")], [], []]
    backwards = RangePages(RANGES[:1], reverse=True)
    backwards.take([([ROW], b"b")])
    assert backwards.left(9) == [ScanRange(b"a", b"b", None)]


@pytest.mark.parametrize(
    "answer", [[], [([], b"a")], [([ROW], None)] * 4], ids=["nothing", "a page that stands", "too many ranges"]
)
def test_an_invalid_page_is_rejected(answer: list[PageRows]) -> None:
    with pytest.raises(WireError):
        RangePages(RANGES, reverse=False).take(answer)


async def _listed(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


def test_a_scan_continues_after_the_last_row_at_the_version_of_the_first_page() -> None:
    requests: list[tuple[ScanRange, int | None]] = []

    async def page(requested: ScanRange, at: int | None) -> RangePage:
        requests.append((requested, at))
        return RangePage(7, [(b"%d" % len(requests), b"v")], b"%d\0" % len(requests) if len(requests) < 3 else None)

    assert len(asyncio.run(_listed(scan_pages(page, ScanRange(b"0", None, 9), None, reverse=False)))) == 3
    assert requests == [
        (ScanRange(b"0", None, 9), None),
        (ScanRange(b"1\0", None, 8), 7),
        (ScanRange(b"2\0", None, 7), 7),
    ]


def test_an_empty_page_that_is_not_the_last_is_rejected() -> None:
    """From a server and from a mapping server: a loop over such pages would not end."""

    async def rows(requested: ScanRange, at: int | None) -> RangePage:
        return RangePage(7, [], b"")

    async def entries(at: int | None) -> tuple[list[tuple[int, bytes | None]], bool]:
        return [], True

    with pytest.raises(WireError, match="empty"):
        asyncio.run(_listed(scan_pages(rows, ScanRange(None, None, None), None, reverse=False)))
    with pytest.raises(WireError, match="empty"):
        asyncio.run(_listed(history_pages(entries, None)))
