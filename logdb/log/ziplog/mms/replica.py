"""A replica of the MMS: a founder whose state is the membership."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from logdb.cores.effects import Address, Journal, SetTimer, Stop
from logdb.log.paxos.founder import Commands, Founder
from logdb.log.record_clock import is_beyond_any_pause
from logdb.log.ziplog.messages import (
    ChangeRequest,
    ChangeResponse,
    NotLeader,
    Report,
    TailRequest,
    TailResponse,
    ViewRequest,
    ViewResponse,
)
from logdb.log.ziplog.mms import commands
from logdb.log.ziplog.mms.config import MmsConfig
from logdb.log.ziplog.mms.leader import Leader
from logdb.log.ziplog.mms.state import MembershipState, Result

EPOCH: Final = "mms.epoch"


class MmsReplica(Founder[MembershipState, Leader]):
    """The core of one replica (ZIP-n as far as one replica sees them)."""

    TICK = "mms.tick"
    COMMANDS: ClassVar[Commands] = commands
    config: MmsConfig

    def __init__(self, config: MmsConfig, journals: Mapping[str, Journal], rng: random.Random) -> None:
        handlers: dict[type, Any] = {
            Report: self._report,
            ChangeRequest: self._change,
            TailRequest: self._question,
            ViewRequest: self._question,
        }
        super().__init__(config, MembershipState(config.epoch_ns), journals, rng, handlers)

    def _elected(self, now: int) -> Leader:
        return Leader(self.config, self._out, now)

    def _applied(self, leader: Leader, command: commands.Command, now: int) -> None:
        leader.on_applied(self.state, now)

    def _fired(self, leader: Leader, name: str, now: int) -> None:
        leader.on_timer(name == EPOCH, self.state, now)

    def _set_timers(self, leader: Leader, now: int) -> None:
        super()._set_timers(leader, now)
        if leader.epoch_at is not None and leader.epoch_at != leader.epoch_timer_at:
            leader.epoch_timer_at = leader.epoch_at
            self._out.append(SetTimer(EPOCH, leader.epoch_at))

    def _propose(self, command: commands.Command, now: int) -> None:
        if not is_beyond_any_pause(self.state.origin, now):
            super()._propose(command, now)
            return
        if self.leader is not None:
            self.leader.commands.clear()
        self._out.append(Stop("its clock is more than ten years ahead of the log: set it right", wipe=False))

    def _answer(self, question: TailRequest | ViewRequest) -> Any:
        state = self.state
        if isinstance(question, ViewRequest):
            return ViewResponse(question.request, state.view())
        last = max([state.left, *(self.leader.stable.values() if self.leader is not None else ())])
        return TailResponse(question.request, last, state.oldest, state.cut, state.interval_ns)

    def _outcome(self, result: Result) -> ChangeResponse:
        return ChangeResponse(*result)

    def _not_leader(self, request: int, leader: Address) -> NotLeader:
        return NotLeader(request, leader)
