"""A replica of the auxiliary: a founder whose state is the projection."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, ClassVar

from logdb.cores.effects import Address, Journal
from logdb.log.corfu.auxiliary import commands
from logdb.log.corfu.auxiliary.config import AuxiliaryConfig
from logdb.log.corfu.auxiliary.leader import Leader
from logdb.log.corfu.auxiliary.state import ProjectionState, Result
from logdb.log.corfu.messages import (
    ChangeRequest,
    ChangeResponse,
    NotLeader,
    Report,
    Sealed,
    SequencerReport,
    TailRequest,
    TailResponse,
    ViewRequest,
    ViewResponse,
)
from logdb.log.paxos.founder import Commands, Founder


class AuxiliaryReplica(Founder[ProjectionState, Leader]):
    """The core of one replica (COR-n as far as one replica sees them)."""

    TICK = "auxiliary.tick"
    COMMANDS: ClassVar[Commands] = commands
    config: AuxiliaryConfig

    def __init__(self, config: AuxiliaryConfig, journals: Mapping[str, Journal], rng: random.Random) -> None:
        handlers: dict[type, Any] = {
            Report: self._report,
            SequencerReport: self._sequencer_report,
            Sealed: self._sealed,
            ChangeRequest: self._change,
            TailRequest: self._question,
            ViewRequest: self._question,
        }
        super().__init__(config, ProjectionState(), journals, rng, handlers)

    def _elected(self, now: int) -> Leader:
        return Leader(self.config, self._out, now)

    def _applied(self, leader: Leader, command: commands.Command, now: int) -> None:
        leader.on_applied(command, self.state, now)

    def _fired(self, leader: Leader, name: str, now: int) -> None:
        leader.on_timer(self.state, now)

    def _sequencer_report(self, report: SequencerReport, sender: Address, now: int) -> None:
        if self.leader is not None:
            self.leader.on_sequencer(report, sender, self.state, now)

    def _sealed(self, answer: Sealed, sender: Address, now: int) -> None:
        if self.leader is not None:
            self.leader.on_sealed(answer, self.state, now)

    def _answer(self, question: TailRequest | ViewRequest) -> Any:
        state = self.state
        if isinstance(question, ViewRequest):
            return ViewResponse(question.request, state.view())
        last = max(state.last, self.leader.last() if self.leader is not None else 0)
        return TailResponse(question.request, last, state.oldest, state.epoch)

    def _outcome(self, result: Result) -> ChangeResponse:
        return ChangeResponse(*result)

    def _not_leader(self, request: int, leader: Address) -> NotLeader:
        return NotLeader(request, leader)
