"""A gRPC stream whose events are received by the threads that use it.

gRPC's streams for threads pass each message through two threads of their own. The blocking calls of gRPC do not: their
thread polls for its own events (`SegregatedCall`). This module uses the same call for a stream in both directions,
through the interface between gRPC's Python code and its core. A message and its answer then cost a third of the CPU
time (docs/performance.md).
"""

from __future__ import annotations

import importlib
import operator
import threading
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import grpc

cygrpc: Any = importlib.import_module("grpc._cython.cygrpc")
IS_AVAILABLE: Final = all(
    hasattr(cygrpc, name) for name in ("SegregatedCall", "SendMessageOperation", "ReceiveStatusOnClientOperation")
)
"""Whether this version of gRPC has what the module uses."""
_NO_FLAGS: Final = 0
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_CANCELLED: Final = grpc.StatusCode.CANCELLED.value[0]
_READY: Final = grpc.ChannelConnectivity.READY.value[0]
_BEGUN, _SENT, _RECEIVED, _ENDED = "begun", "sent", "received", "ended"


class _Condition(threading.Condition):
    """A condition of gRPC whose `with` runs no Python code.

    A signal handler that raises (Ctrl-C) would otherwise interrupt `__enter__` or `__exit__`. The condition would stay
    locked by the main thread, and all other threads would hang.
    """

    __enter__: Any = property(operator.attrgetter("_lock.__enter__"))
    __exit__: Any = property(operator.attrgetter("_lock.__exit__"))


if IS_AVAILABLE:
    cygrpc.threading = SimpleNamespace(**{**vars(threading), "Condition": _Condition})


class Ended(NamedTuple):
    """The stream has ended, with this status."""

    code: grpc.StatusCode
    details: str


class PolledStream:
    """A stream of messages as bytes.

    One thread at a time calls `wait` and then `handle`, until the stream is over. A lock of the caller
    excludes `handle` and `send`. `can_send`: the message before has left, so `send` may be called. `open_channel`: the
    channel after `wait` was interrupted, for the next stream: gRPC never closes its connection (see `wait`).
    """

    def __init__(self, channel: Any, method: str, metadata: Any, first: bytes) -> None:
        self._channel = channel
        self.can_send = False
        self.open_channel: Any = None
        self._due = {_BEGUN, _SENT, _RECEIVED, _ENDED}
        self._status: Ended | None = None
        started = (
            ((cygrpc.SendInitialMetadataOperation(metadata, _NO_FLAGS), _sending(first)), _SENT),
            ((cygrpc.ReceiveInitialMetadataOperation(_NO_FLAGS),), _BEGUN),
            ((cygrpc.ReceiveMessageOperation(_NO_FLAGS),), _RECEIVED),
            ((cygrpc.ReceiveStatusOnClientOperation(_NO_FLAGS),), _ENDED),
        )
        self._core = core = channel._channel
        self._call = core.segregated_call(_NO_FLAGS, method.encode(), None, None, metadata, None, started, None)

    @property
    def is_over(self) -> bool:
        """Whether no event will follow."""
        return not self._due

    @property
    def is_connected(self) -> bool:
        """Whether the connection stands, as far as gRPC knows without an event."""
        return self._core.check_connectivity_state(False) == _READY  # type: ignore[no-any-return]

    def send(self, message: bytes) -> None:
        """Send a message, without an effect if the stream has ended. Only while `can_send`."""
        self.can_send = False
        self._start(_SENT, _sending(message))

    def wait(self) -> Any:
        """Wait for the next event, which `handle` takes. Raises KeyboardInterrupt: the stream is over then.

        An event may be lost with an interrupt, so the last ones are left, and hold the connection. `_due` is never more
        than what gRPC still has: to wait for an event that does not come ends the process.
        """
        try:
            event = self._call.next_event()
            self._due.discard(event.tag)
        except BaseException:
            self._due.clear()
            self.open_channel = self._channel
            self.cancel()
            raise
        return event

    def handle(self, event: Any) -> bytes | Ended | None:
        """The message that has come, or the status with which the stream is over; None for other events."""
        tag, operation = event.tag, event.batch_operations[0]
        message = None
        if tag is _RECEIVED:
            message = operation.message()
            if message is not None:
                self._start(_RECEIVED, cygrpc.ReceiveMessageOperation(_NO_FLAGS))
        elif tag is _SENT:
            self.can_send = bool(event.success)
        elif tag is _ENDED:
            self.can_send = False
            code, details = operation.code(), operation.details()
            text = details.decode("utf-8", "replace") if isinstance(details, bytes) else str(details or "")
            self._status = Ended(_CODES.get(code, grpc.StatusCode.UNKNOWN), text)
        if self._due:
            return message
        self._channel.close()
        return self._status

    def cancel(self) -> None:
        """End the stream, from any thread: `wait` and `handle` then come to its status."""
        self._call.cancel(_CANCELLED, "cancelled")

    def close(self) -> None:
        """Cancel the stream, and free what it holds."""
        if self._due:
            self.cancel()
        while self._due:
            self.handle(self.wait())

    def _start(self, tag: str, operation: Any) -> None:
        try:
            self._due.add(tag)
            self._call.operate((operation,), tag)
        except BaseException as error:
            self._due.discard(tag)
            if not isinstance(error, ValueError):  # that of a call that has ended
                raise


def _sending(message: bytes) -> Any:
    return cygrpc.SendMessageOperation(message, _NO_FLAGS)
