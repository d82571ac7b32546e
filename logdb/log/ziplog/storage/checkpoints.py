"""The state that a server must know after a restart beside its records: each record of the journal META has it all."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from logdb.cores.effects import Create, Journal, Persist, Trim
from logdb.log.ziplog.storage.member_state import MemberState
from logdb.log.ziplog.storage.sessions import Sessions
from logdb.log.ziplog.storage.shard_log import ShardLog

META: Final = "meta"
SAVED: Final = 1
"""The tag of the records of META."""


def ignore_time(now: int) -> None:
    """Nothing is left to do."""


class Checkpoints:
    """Saves the state of a server, and loads it. `journals`: as they were found, none at the first start."""

    def __init__(self, state: MemberState, journals: Mapping[str, Journal]) -> None:
        self._state = state
        self._end = 1
        self._waiting: deque[tuple[int, Callable[[int], None]]] = deque()
        self._captured: tuple[int, bytes, int] | None = None
        self._receiving: ShardLog | None = None
        self._has_journal = META in journals
        self._load(journals)

    def _load(self, journals: Mapping[str, Journal]) -> None:
        """Load the state of a restarted server. It is frozen in the view that it had adopted (ZIP-8)."""
        found = journals.get(META)
        if found is None or not len(found.records):
            return
        self._end = found.end
        state, saved = self._state, json.loads(found.records[-1].payload)
        state.nonce, state.shard_number, state.view = saved["nonce"], saved["shard"], saved["view"]
        state.reads.oldest, state.reads.version = saved["oldest"], saved["version"]
        state.change = saved["change"]
        segments = [(name, start) for name, start in saved["segments"]]
        of_clients = saved["upto"], Sessions.from_json(saved["sessions"])
        state.log.load(journals, segments, of_clients, saved["stable"], saved["speculative"], saved["oldest"])
        state.log.store.trim(min(saved["oldest"], saved["upto"] + 1))
        state.is_frozen = state.shard_number > 0
        state.may_lack = state.is_frozen and saved.get("acks_received", False)

    def start(self) -> None:
        """Save the state of a server that has started for the first time."""
        if self._end == 1:
            if not self._has_journal:
                self._state.out.append(Create(META, 1))
            self.save(ignore_time)

    def save(self, then: Callable[[int], None]) -> None:
        """Save the present state, and act once it is on the medium. Trimmed records are removed behind that."""
        self._captured = None
        self._state.unsaved_bytes = 0
        self._write(self._to_bytes(), partial(self._saved, self._removable(), then))

    def _saved(self, oldest: int, then: Callable[[int], None], now: int) -> None:
        then(now)
        self._trim(oldest, now)

    def cancel(self) -> None:
        """The state that waits for its records to be durable is not that of the next view."""
        self._captured = None

    def save_if_due(self) -> None:
        """Save the sessions when many records have come, or were trimmed; the order must be durable first. Trimmed
        records are removed behind that, so no restart forgets that they are gone."""
        state = self._state
        if not state.view or state.base is not None:
            return
        begins_to_receive = self._begins_to_receive()
        if begins_to_receive:
            self._receiving = state.log
        if begins_to_receive or (self._captured is None and state.unsaved_bytes > state.config.checkpoint_bytes):
            state.unsaved_bytes = 0
            self._captured = state.log.end, self._to_bytes(), self._removable()
        if self._captured is not None and state.log.durable >= self._captured[0]:
            _, saved, oldest = self._captured
            self._captured = None
            self._write(saved, partial(self._saved, oldest, partial(self._acknowledge_received, self._receiving)))

    def _begins_to_receive(self) -> bool:
        """Whether this server may acknowledge what it has only received, once it is saved that it may lack records
        after a restart. Until a view is in the set, nothing is acknowledged in it, and a restart loses nothing
        (ZIP-12)."""
        state, config = self._state, self._state.shard
        is_in_set = config is not None and config.view == state.view and config.is_in_set
        return state.config.acks_received and is_in_set and state.is_serving and self._receiving is not state.log

    def _acknowledge_received(self, log: ShardLog | None, now: int) -> None:
        if log is not None:
            log.acks_received = True

    def _removable(self) -> int:
        """The oldest record to keep when the present state is saved. Later records may be trimmed, too, if the rest of
        the log is ahead, but the saved sessions do not have them (ZIP-5)."""
        return min(self._state.reads.oldest, self._state.log.end + 1)

    def _trim(self, oldest: int, now: int) -> None:
        """Remove records, but none that another member may yet copy which does not know that they are trimmed."""
        state = self._state
        if state.base is None and (state.primary is None or state.primary.is_established):
            state.log.store.trim(oldest)

    def _write(self, saved: bytes, then: Callable[[int], None]) -> None:
        self._state.out.append(Persist(META, self._end, [(SAVED, saved)]))
        self._end += 1
        self._waiting.append((self._end, then))

    def persisted(self, end: int, now: int) -> None:
        """The records of META before `end` are on the medium."""
        while self._waiting and self._waiting[0][0] <= end:
            self._waiting.popleft()[1](now)
        if end > 2:
            self._state.out.append(Trim(META, end - 1))

    def _to_bytes(self) -> bytes:
        state = self._state
        saved = {
            "nonce": state.nonce,
            "shard": state.shard_number,
            "view": state.view,
            "change": state.change,
            "acks_received": self._receiving is state.log or (state.may_lack and state.base is None),
            "oldest": state.reads.oldest,
            "version": state.reads.version,
            "stable": state.log.stable,
            "speculative": state.log.speculative_journal,
            "segments": [(segment.journal, segment.start) for segment in state.log.store.segments],
            "upto": state.log.end,
            "sessions": state.log.sessions.to_json(),
        }
        return json.dumps(saved, separators=(",", ":")).encode()
