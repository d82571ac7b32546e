"""Views at a storage server: it adopts what the MMS decides, from what it has, and goes back to that if the new view
fails before all of it is durable here."""

from __future__ import annotations

from functools import partial

from logdb.cores.effects import Address
from logdb.log.ziplog.messages import Freeze, Member, Sessions, ShardConfig
from logdb.log.ziplog.records import gsn_of
from logdb.log.ziplog.storage import sessions
from logdb.log.ziplog.storage.backup import Backup
from logdb.log.ziplog.storage.checkpoints import Checkpoints
from logdb.log.ziplog.storage.inserts import Inserts
from logdb.log.ziplog.storage.member_state import MemberState
from logdb.log.ziplog.storage.replication import Primary
from logdb.log.ziplog.storage.shard_log import ORDER, SPECULATIVE


class Views:
    """Changes the view of a server, and all that a view replaces."""

    def __init__(self, state: MemberState, checkpoints: Checkpoints, inserts: Inserts, backup: Backup) -> None:
        self._state, self._checkpoints, self._inserts, self._backup = state, checkpoints, inserts, backup
        self._is_saving = False
        self._received, self._expected = sessions.Sessions(), (0, 0)

    def on_freeze(self, message: Freeze, sender: Address, now: int) -> None:
        """The MMS is about to begin another view."""
        state = self._state
        if state.serves(message.shard, message.view):
            self._freeze()
            state.must_report = True

    def _freeze(self) -> None:
        """Accept nothing in this view any more."""
        state = self._state
        state.is_frozen = True
        state.primary = None
        self._inserts.end_view()
        state.reads.end_waiting()

    def follow(self, now: int) -> None:
        """Adopt the view of the newest configuration, unless the last adoption is being saved."""
        state, config = self._state, self._state.shard
        if config is None or config.view <= state.view or state.adopting is not None or self._is_saving:
            return
        if state.base is not None:
            state.log.drop_journals(state.base)
            state.log, state.base = state.base, None
        member = next((one for one in config.members if one.server == state.number), None)
        self._freeze()
        if member is not None:
            self._adopt(config, member, now)

    def _adopt(self, config: ShardConfig, me: Member, now: int) -> None:
        """Begin a view: with all that this server has if it is the source, else with what it keeps. The source may know
        more of its order to be stable than it has reported."""
        state, log = self._state, self._state.log
        suffix = f"{config.view}-{state.rng.getrandbits(32):08x}"
        names = f"{ORDER}{suffix}", f"{SPECULATIVE}{suffix}"
        if state.update is not None:
            state.reads.version = max(state.reads.version, state.update.epoch.version)
        state.is_synced, state.base = False, log
        self._checkpoints.cancel()
        self._backup.end_view()
        if me is config.members[0]:
            start = max(me.valid, log.stable)
            records = log.to_keep(start)
            end = max([log.end, start, config.bound - 1, *(gsn_of(payload) for _, payload in records[-1:])])
            state.log = log.begin_view(names, start, end, records, log.sessions)
            state.adopting = config
            self.finish_adoption()
        else:
            state.log = log.begin_view(names, me.valid, me.valid, (), sessions.Sessions())
            self._begin(config, now)

    def finish_adoption(self) -> None:
        """Save the view that the source begins, once all that it begins with is durable (ZIP-9)."""
        state, config = self._state, self._state.adopting
        if config is None or state.log.durable < state.log.end or self._is_saving:
            return
        state.shard_number, view, state.view = config.shard, state.view, config.view
        self._is_saving = True
        self._checkpoints.save(partial(self._adopted, config))
        state.view = view

    def _adopted(self, config: ShardConfig, now: int) -> None:
        """The source has saved the view."""
        state = self._state
        state.adopting = None
        self._commit()
        state.primary = Primary(state.config, config, state.log, state.out, now)
        state.reads.can_wait = True
        self._begin(config, now)

    def _commit(self) -> None:
        """The directory has the new view: what this server had before is not needed any more (ZIP-10)."""
        state = self._state
        assert state.base is not None, "ZIP-10"
        self._is_saving = False
        state.base.drop_journals(state.log)
        state.base = None
        state.is_synced, state.may_lack = True, False

    def _begin(self, config: ShardConfig, now: int) -> None:
        """Take part in a view."""
        state = self._state
        state.shard_number, state.view, state.is_frozen = config.shard, config.view, False
        state.must_report = True
        self._backup.begin_view(now)
        self.follow(now)
        self._inserts.enter(now)

    def on_sessions(self, message: Sessions, sender: Address, now: int) -> None:
        """All that a new member lacked: save it, and be synced."""
        state, log = self._state, self._state.log
        if not state.serves(message.shard, message.view) or state.primary is not None:
            return
        if state.is_synced or self._is_saving or not message.end == log.end == log.durable:
            return
        if message.first == 0:
            self._received = sessions.Sessions()
        elif (message.end, message.first) != self._expected:
            return
        if not self._received.merge(sessions.Sessions.from_json(message.sessions), message.first):
            return
        self._expected = message.end, message.following
        if message.following:
            return
        log.sessions = self._received
        self._is_saving = True
        self._checkpoints.save(self._synced)

    def _synced(self, now: int) -> None:
        self._commit()
        self._state.must_report = True
        self.follow(now)

    def be_drained(self) -> None:
        """The order is complete, and stable on all members."""
        state, config, update = self._state, self._state.shard, self._state.update
        assert config is not None
        assert update is not None
        state.reads.version = max(state.reads.version, update.epoch.version)
        state.log.skip(config.bound - 1)
        if state.log.learn_stable(config.bound - 1):
            state.reads.wake(state.log)
        if not state.is_frozen:
            self._freeze()
            state.must_report = True
