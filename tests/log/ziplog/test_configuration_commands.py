"""Commands of the configuration: bytes that are none are refused."""

from __future__ import annotations

import pytest

from logdb.cores.effects import ProtocolViolation
from logdb.log.ziplog.mms.commands import decode

DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize("value", [b"", b"[", b"5", b'["Unknown"]', DEEP, b'["AddShard",%b]' % DEEP])
def test_what_is_no_command_is_refused(value: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        decode(value)
