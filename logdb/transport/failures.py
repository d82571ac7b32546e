"""Why a server could not be reached: what gRPC, TLS and the system report, in a few words."""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

import grpc

from logdb.security.credentials import Credentials
from logdb.security.tls_diagnostics import NO_GRPC, tls_failure

aio: Any = grpc.aio  # its type stubs are incomplete
BROKEN: Final = (grpc.RpcError, aio.UsageError, asyncio.InvalidStateError)
"""The errors of gRPC for a stream that has ended; which one depends on which side detects it first."""

DETAILS_LENGTH: Final = 200
_SYSTEM: Final = ("connection refused", "connection reset", "the server is stopping", "name or service not known")


class Failure(NamedTuple):
    """A failed attempt. `is_permanent`: trying again fails in the same way until the configuration changes."""

    reason: str
    is_permanent: bool = False


async def failure_of(address: str, error: Exception, credentials: Credentials) -> Failure:
    """The failure of an attempt to reach a server. May connect once more, to see what a TLS handshake reports."""
    if not isinstance(error, aio.AioRpcError):
        return Failure(reason_of(error))
    return await failure_of_status(address, error.code(), error.details(), credentials)


async def failure_of_status(address: str, code: Any, details: str | None, credentials: Credentials) -> Failure:
    """The failure of an attempt that gRPC has ended with a status. May connect once more, as `failure_of`."""
    if code is grpc.StatusCode.UNAVAILABLE:
        reason = await tls_failure(address, str(details), credentials)
        if reason:
            return Failure(reason, is_permanent=True)
    return Failure(reason_of_status(code, details), code is grpc.StatusCode.UNIMPLEMENTED)


def is_another_service(error: Exception) -> bool:
    """Whether a gRPC server has answered that does not offer the method that was called."""
    return isinstance(error, aio.AioRpcError) and error.code() is grpc.StatusCode.UNIMPLEMENTED


def reason_of(error: Exception) -> str:
    """An error of a connection attempt, or of a stream, in a few words."""
    if isinstance(error, TimeoutError):
        return "no answer"
    if isinstance(error, aio.AioRpcError):
        return reason_of_status(error.code(), error.details())
    return str(error) or type(error).__name__


def reason_of_status(code: Any, details: str | None) -> str:
    """The status with which gRPC has ended a call, in a few words."""
    details = " ".join((details or "").split())
    lower = details.lower()
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return "it is a gRPC server of another kind"
    for reason in _SYSTEM:
        if reason in lower:
            return reason
    if NO_GRPC in lower:
        return "it does not speak gRPC"
    if code is grpc.StatusCode.UNAVAILABLE:
        _, is_connecting, reason = details.rpartition("Failed to connect to remote host: ")
        return reason.lower() if is_connecting else details.rpartition("last error: ")[2][:DETAILS_LENGTH]
    return f"{code.name.lower() if code is not None else 'unknown'}: {details[:DETAILS_LENGTH]}"
