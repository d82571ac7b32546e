"""The clients: three workloads over the public API, and requests for the outcomes of transactions.

- list-append: transactions that read a few lists and append to some of them; every element is unique.
- bank: transfers between accounts whose sum never changes, and reads of all accounts. An account with the balance of
  one that was never opened may be deleted; and some transfers read all accounts, or all cells, as a range.
- compare-and-set: single keys, written or deleted if they hold the value that was read (test-and-multi-put), written
  and deleted blindly, and read.

Reads are linearizable, of a version that was seen before, or continue this client's session in another client.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import logdb
import logdb.aio
from logdb.errors import ConflictError, LogDBError, OutcomeUnknown, Unavailable, VersionTrimmed
from logdb.txn.retry import RunOptions
from tests.nemesis.history import Ops, Recorder, elements_of

ACCOUNTS = [f"account {number}" for number in range(5)]
"""The names of the simulator, whose bank checks know them and the initial balance of 100."""
CELLS = [f"cell {number}" for number in range(3)]
SPANS = (("account ", "account:"), ("cell ", "cell:"))
LISTS = 4
LIST_LENGTH = 20
"""A client moves on to other lists after this many appends to each."""

WEIGHTS = {"append": 12, "transfer": 10, "cas": 8, "put": 5, "delete": 3, "read": 8, "get": 5, "scan": 3, "past": 3,
           "outcome": 4, "session": 4}  # fmt: skip


def balance_of(value: str | None) -> int:
    """An account holds its balance and a unique name."""
    return 100 if value is None else int(value.partition(" ")[0])


ATTEMPTS = 3
THOUGHTFUL, LONGEST_THOUGHT_S = 0.2, 3.0
"""The share of slow transactions, and their longest pause between reads and commit, while servers stop and start."""
LARGE_BYTES = 6_000


def packed(name: str) -> bytes:
    """The value of a cell: a name, for every seventh one padded so that it is stored apart from its commit record."""
    return name.encode().ljust(LARGE_BYTES, b"_") if int(name.rpartition(".")[2]) % 7 == 0 else name.encode()


def unpacked(value: bytes) -> str:
    """The inverse. Raises ValueError for any other value."""
    name = value.rstrip(b"_").decode()
    if packed(name) != value:
        raise ValueError(f"the value of {name} has {len(value)} bytes, but not those that were written")
    return name


def text_of(key: str, value: bytes | None) -> str | None:
    """A value as the history has it."""
    if value is None:
        return None
    return unpacked(value) if key.startswith("cell") else value.decode()


class Client:
    """One client process: some workers over one database. `go_on`: opens another connection that continues a
    session."""

    def __init__(
        self,
        db: logdb.aio.Database,
        recorder: Recorder,
        seed: int,
        think_s: float,
        go_on: Callable[[int], Awaitable[logdb.aio.Database]],
    ) -> None:
        self.db, self.recorder, self.think_s, self.go_on = db, recorder, think_s, go_on
        self.draw = random.Random(seed)
        self.session = 0
        self.stopping = False
        self.appended = 0
        self.ended: list[str] = []
        self._names = 0

    async def run(self, workers: int) -> None:
        """Until `stopping`."""
        await asyncio.gather(*(self._work(worker) for worker in range(workers)))

    async def _work(self, worker: int) -> None:
        while not self.stopping:
            (what,) = self.draw.choices(list(WEIGHTS), list(WEIGHTS.values()))
            await Running(self, f"{worker}", what).run()
            await asyncio.sleep(self.draw.expovariate(1 / self.think_s))

    def name(self) -> str:
        """A unique value."""
        self._names += 1
        return f"{self.recorder.client}.{self._names}"

    def list_name(self) -> str:
        """One of the current lists. All clients append at about the same rate, so they move on together."""
        epoch = self.appended // (LIST_LENGTH * LISTS)
        return f"list {epoch}.{self.draw.randrange(LISTS)}"


class Running:
    """One operation of one worker, from its first line to its last."""

    def __init__(self, client: Client, process: str, f: str) -> None:
        self.client, self.process, self.f = client, process, f
        self.db, self.draw = client.db, client.draw
        self.ops: Ops = []
        self.label = ""
        self.results: dict[str, Any] = {}
        self._txn_id = ""

    async def run(self) -> None:
        """Plan it, record the plan, run it, record the result."""
        plan, body = getattr(self, f"_{self.f}")()
        self.ops = plan
        self.label = self.client.name()
        linearizable = self.f not in ("snapshot", "session")
        self._write("invoke", f=self.f, ops=plan, session=self.client.session, label=self.label,
                    linearizable=linearizable)  # fmt: skip
        status, error = await self._outcome_of(body)
        if status != "ok" and "failed" not in error:
            self.results.pop("version", None)
        if status == "fail" and self.results.get("snapshot") == 0:
            self.ops = [op for op in self.ops if op[0] != "r"]  # speculative reads that were not verified
        self._write(status, ops=self.ops, error=error, txn=self._txn_id, **self.results)
        if self._txn_id:
            self.client.ended.append(self._txn_id)
        if status == "ok":
            self.client.session = max(self.client.session, self.results.get("version", 0))

    def _write(self, type_: str, **fields: Any) -> None:
        self.client.recorder.write(self.process, type_, **fields)

    async def _outcome_of(self, body: Callable[[], Awaitable[None]]) -> tuple[str, dict[str, Any]]:
        try:
            await body()
        except ConflictError as error:
            return "fail", {
                "error": "ConflictError", "key": error.key.decode(), "version": error.version,
                "winner": error.winner, "snapshot": error.snapshot,
            }  # fmt: skip
        except Refused as error:
            return "fail", {"error": "condition", "failed": error.failed}
        except OutcomeUnknown as error:
            self._txn_id = error.txn_id
            return "info", {"error": "OutcomeUnknown", "text": str(error)}
        except (Unavailable, VersionTrimmed) as error:
            return "fail", {"error": type(error).__name__, "text": str(error)}
        except LogDBError as error:
            return "info", {"error": type(error).__name__, "text": str(error)}
        return "ok", {}

    # ---- transactions: each returns its plan and its body

    def _append(self) -> tuple[Ops, Callable[[], Awaitable[None]]]:
        keys = sorted({self.client.list_name() for _ in range(self.draw.choice((1, 2, 3)))})
        self.draw.shuffle(keys)
        appends = [["append", key, self.client.name()] for key in keys for _ in range(self.draw.choice((0, 1, 1, 2)))]
        self.client.appended += len(appends)
        if not appends:
            self.f = "read"
        plan = [*(["r", key, None] for key in keys), *appends]

        async def body(txn: logdb.aio.Transaction) -> None:
            if len(keys) == 1:
                value = await txn.get(keys[0].encode())
                found = {} if value is None else {keys[0].encode(): value}
            else:
                found = await txn.multi_get([key.encode() for key in keys])
            reads = {key: found.get(key.encode()) for key in keys}
            self.ops = [*(["r", key, None if value is None else value.decode()] for key, value in reads.items()),
                        *appends]  # fmt: skip
            lists = {key: elements_of(None if value is None else value.decode()) for key, value in reads.items()}
            for _, key, element in appends:
                lists[key].append(element)
                txn.put(key.encode(), ",".join(lists[key]).encode())
            self._write_plan()

        return plan, lambda: self._transact(body)

    def _transfer(self) -> tuple[Ops, Callable[[], Awaitable[None]]]:
        one, other = self.draw.sample(ACCOUNTS, 2)
        amount, name = self.draw.randint(1, 20), self.client.name()
        closes, span = self.draw.random() < 0.2, self.draw.choice((None, None, *SPANS))

        async def body(txn: logdb.aio.Transaction) -> None:
            values = [await txn.get(key.encode()) for key in (one, other)]
            texts = [None if value is None else value.decode() for value in values]
            moved = balance_of(texts[0]) - balance_of(None) if closes else amount
            left = None if closes else f"{balance_of(texts[0]) - moved} {name}"
            written = {one: left, other: f"{balance_of(texts[1]) + moved} {name}"}
            self.ops = [["r", one, texts[0]], ["r", other, texts[1]]]
            if span is not None:
                rows = {key: value async for key, value in txn.scan(*(bound.encode() for bound in span))}
                found = {key.decode(): text_of(key.decode(), value) for key, value in rows.items()}
                self.ops.append(["scan", *span, found])
            self.ops += [["w", key, value] for key, value in written.items()]
            txn.multi_put({key.encode(): None if text is None else text.encode() for key, text in written.items()})
            self._write_plan()

        return [["r", one, None], ["r", other, None]], lambda: self._transact(body)

    def _write_plan(self) -> None:
        """Record the writes before the commit, which depend on the reads: the history has them even if the client dies
        now."""
        self._write("plan", ops=self.ops)

    async def _transact(self, body: Callable[[logdb.aio.Transaction], Awaitable[None]]) -> None:
        """Run it once, or as `run` does: again after a conflict, and perhaps speculatively."""

        async def recorded(txn: logdb.aio.Transaction) -> logdb.aio.Transaction:
            self._txn_id = ""  # an attempt that ends early has not what the one before had
            self.results.pop("snapshot", None)
            await body(txn)
            if self.draw.random() < THOUGHTFUL:
                await asyncio.sleep(self.draw.uniform(0, LONGEST_THOUGHT_S))
            self._txn_id = str(txn.id) if txn.writes else ""
            self.results["snapshot"] = txn.snapshot
            return txn

        if self.draw.random() < 0.5:
            txn = await self.db.attempt(RunOptions(self.label, ATTEMPTS), recorded)
        else:
            async with self.db.transaction(label=self.label) as txn:
                await recorded(txn)
        self.results["version"] = txn.version if txn.writes else txn.snapshot
        self.results["snapshot"] = txn.snapshot or txn.version - 1  # the speculated value held at the commit

    # ---- single keys

    def _cas(self) -> tuple[Ops, Callable[[], Awaitable[None]]]:
        """A test-and-multi-put against the value that the key holds: two operations, of which the first only reads."""
        key, name = self.draw.choice(CELLS), None if self.draw.random() < 0.25 else self.client.name()

        async def body() -> None:
            value = await self.db.get(key.encode())
            text = text_of(key, value)
            self.ops = [["cas", key, text, name]]
            self._write_plan()
            condition = logdb.absent(key.encode()) if value is None else logdb.equals(key.encode(), value)
            items = {key.encode(): None if name is None else packed(name)}
            answer = await self.db.test_and_multi_put([condition], items, label=self.label)
            self.results["version"] = answer.version
            if not answer.committed:
                raise Refused([0])

        return [], body

    def _put(self) -> tuple[Ops, Callable[[], Awaitable[None]]]:
        key, name = self.draw.choice(CELLS), self.client.name()

        async def body() -> None:
            self.results["version"] = await self.db.put(key.encode(), packed(name), label=self.label)

        return [["w", key, name]], body

    def _delete(self) -> tuple[Ops, Callable[[], Awaitable[None]]]:
        """Test whether the key exists."""
        key = self.draw.choice(CELLS)

        async def body() -> None:
            self.results["version"] = await self.db.delete(key.encode(), label=self.label)

        return [["w", key, None]], body

    # ---- reads

    def _get(self) -> tuple[Ops, Callable[[], Awaitable[None]]]:
        key = self.draw.choice(CELLS)

        async def body() -> None:
            value = await self.db.get(key.encode())
            self.ops = [["r", key, text_of(key, value)]]

        return [["r", key, None]], body

    def _some_keys(self) -> list[str]:
        return self.draw.choice((ACCOUNTS, ACCOUNTS, CELLS, [self.client.list_name() for _ in range(2)]))

    def _read(self) -> tuple[Ops, Callable[[], Awaitable[None]]]:
        """Read all accounts, or most: as a multi-get, as ranges, or as a read-only transaction."""
        keys = sorted(set(self._some_keys()))
        how = self.draw.random()
        in_transaction, as_ranges = how < 0.3, how > 0.7

        async def body() -> None:
            names = [key.encode() for key in keys]
            if in_transaction:
                async with self.db.transaction(read_only=True) as txn:
                    found = await txn.multi_get(names)
                    self.results["version"] = txn.snapshot
            elif as_ranges:
                ranges = await self.db.multi_scan([(name, name + b"\0") for name in names])
                found = dict(row for rows in ranges for row in rows)
            else:
                answer = await self.db.multi_get(names)
                found, self.results["version"] = answer, answer.version
            self._found(keys, found)

        return [["r", key, None] for key in keys], body

    def _found(self, keys: list[str], found: Any) -> None:
        self.ops = [["r", key, text_of(key, found.get(key.encode()))] for key in keys]

    def _past(self) -> tuple[Ops, Callable[[], Awaitable[None]]]:
        """Read a version that this client has seen."""
        keys = sorted(set(self._some_keys()))
        version = self.draw.randint(self.client.session // 2, self.client.session)

        async def body() -> None:
            snapshot = await self.db.at(version)
            found = await snapshot.multi_get([key.encode() for key in keys])
            self.results["version"] = found.version
            self._found(keys, found)

        self.f = "snapshot"
        return [["r", key, None] for key in keys], body

    def _session(self) -> tuple[Ops, Callable[[], Awaitable[None]]]:
        """Another client continues this session and reads, perhaps at another server."""
        keys, seen = sorted(set(self._some_keys())), self.client.session

        async def body() -> None:
            async with await self.client.go_on(seen) as db:
                found = await db.multi_get([key.encode() for key in keys])
            self.results["version"] = found.version
            self._found(keys, found)

        return [["r", key, None] for key in keys], body

    def _scan(self) -> tuple[Ops, Callable[[], Awaitable[None]]]:
        """Read a range, perhaps backwards, in a read-only transaction, which returns its version."""
        (start, end), reverse = self.draw.choice(SPANS), self.draw.random() < 0.5

        async def body() -> None:
            rows = {}
            async with self.db.transaction(read_only=True) as txn:
                async for key, value in txn.scan(start.encode(), end.encode(), reverse=reverse):
                    rows[key.decode()] = text_of(key.decode(), value)
                self.results["version"] = txn.snapshot
            self.ops = [["scan", start, end, rows]]

        return [], body

    def _outcome(self) -> tuple[Ops, Callable[[], Awaitable[None]]]:
        """Ask for the outcome of one of this client's transactions."""
        ended = self.client.ended
        txn = self.draw.choice(ended[-20:]) if ended else ""

        async def body() -> None:
            if txn:
                outcome = await self.db.outcome(txn)
                self.results["result"] = [txn, outcome.status.name, outcome.version]

        return [], body


class Refused(Exception):
    """A condition did not hold."""

    def __init__(self, failed: list[int]) -> None:
        self.failed = failed
