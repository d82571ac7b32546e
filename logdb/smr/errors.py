"""The errors of replicated state machines.

A command that raises `ReplicaStopped` or `CommandUnknown` may be repeated on another replica: after `ReplicaStopped` as
a new command, after `CommandUnknown` under its id.
"""

from __future__ import annotations

from typing import NamedTuple

from logdb.errors import Advice, LimitExceeded, LogDBError


class CommandId(NamedTuple):
    """The id of a command: the number `number` of the session `session`. `str` and `CommandId.parse` convert it."""

    session: int
    number: int

    def __str__(self) -> str:
        return f"{self.session}-{self.number}"

    @classmethod
    def parse(cls, text: str) -> CommandId:
        """Parse `text`, the result of `str`. Raises ValueError."""
        session, _, number = text.partition("-")
        if not (session.isdecimal() and number.isdecimal()):
            raise ValueError(f"{text!r} is not the id of a command such as 17-3")
        found = cls(int(session), int(number))
        check_id(found)
        return found


def check_id(command_id: CommandId) -> None:
    """Raises TypeError, ValueError for an id that no command has."""
    if any(type(number) is not int for number in command_id):
        raise TypeError(f"the numbers of a CommandId must be ints, not {command_id!r:.100}")
    if not all(0 <= number < 1 << 64 for number in command_id):
        raise ValueError(f"the numbers of a CommandId must be from 0 to 2^64 - 1, not {command_id!r:.100}")


class CommandFailed(LogDBError):
    """The machine raised an exception for the command, at the same point on every replica. This is the command's
    result: a repetition gets it again.

    `kind`: the name of the exception's class. `message`: its text.
    """

    def __init__(self, kind: str, message: str) -> None:
        self.kind, self.message = kind, message
        super().__init__(f"the machine refused the command with {kind}: {message}")


class CommandUnknown(LogDBError):
    """The command may have been applied, or may yet be. `command_id`: its id, with which any replica can repeat it:
    it takes effect once. `why`: the cause."""

    advice = Advice.ASK_OUTCOME

    def __init__(self, command_id: CommandId, why: str) -> None:
        self.command_id, self.why = command_id, why
        super().__init__(
            f"the outcome of command {command_id} is unknown: {why}; execute it again with command_id={command_id!r}"
        )


class CommandExpired(LogDBError):
    """The replicas no longer have the result of the command `command_id`: its session ended, its caller has received
    the result, or too many later commands have followed. This attempt had no effect; an earlier one may have had it."""

    def __init__(self, command_id: CommandId) -> None:
        self.command_id = command_id
        super().__init__(
            f"the replicas do not remember command {command_id}, and did not apply it now; read from the machine"
            " whether it was applied before"
        )


class CommandTooLarge(LimitExceeded):
    """The command is longer than `logdb.smr.MAX_COMMAND_BYTES`."""

    what = "the command"


class ReplicaStopped(LogDBError):
    """The replica is closed or has failed; the command or query had no effect. `why`: the cause."""

    advice = Advice.RETRY

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"the replica has stopped: {why}; open another one")


class SnapshotMissing(LogDBError):
    """The log was trimmed to `oldest`, but contains no snapshot from which a replica could start: the trim was not
    made by a replica."""

    def __init__(self, oldest: int) -> None:
        self.oldest = oldest
        super().__init__(
            f"the log begins at {oldest} and has no complete snapshot of the machine; another program has trimmed it:"
            " restore the log from a copy"
        )


class Diverged(LogDBError):
    """Two replicas have different states at the same position `position`: the machine is not deterministic, or its
    memory is damaged. This replica has stopped."""

    def __init__(self, position: int) -> None:
        self.position = position
        super().__init__(
            f"the states of two replicas differ at position {position}; remove from the machine whatever differs"
            " between processes (clocks, random numbers, the order of sets, files)"
        )


class ForeignRecord(LogDBError):
    """The record at `gsn` has a tag of replicated state machines, but another content."""

    def __init__(self, gsn: int, why: str) -> None:
        self.gsn = gsn
        super().__init__(f"record {gsn} is not one of a replicated state machine: {why}; give each machine its own log")
