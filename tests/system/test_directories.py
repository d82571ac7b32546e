"""Files of a directory's identity and lock that another program has written: any content is an answer or an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from logdb.errors import Corruption, DatabaseInUse
from logdb.system.directories import LOCK, Kind, holding_process, identify, lock

KIND = Kind("a test directory", "TEST", 1)
DEEP = b"[" * 100_000


@pytest.mark.parametrize("content", [b"", DEEP, b"[]", b"{", b'{"pid": 1}', b"\xff", b"null"])
def test_a_lock_file_without_an_owner_names_no_process(tmp_path: Path, content: bytes) -> None:
    held = lock(tmp_path)
    (tmp_path / LOCK).write_bytes(content)
    assert holding_process(tmp_path) is None
    with pytest.raises(DatabaseInUse, match="another process"):
        lock(tmp_path)
    held.release()
    lock(tmp_path).release()


@pytest.mark.parametrize("content", [b"", b"format = " + DEEP, b"format = []", b"id = 1", b"\xff"])
def test_an_identity_without_its_fields_is_damaged(tmp_path: Path, content: bytes) -> None:
    (tmp_path / KIND.identity).write_bytes(content)
    with pytest.raises(Corruption, match=KIND.identity):
        identify(tmp_path, KIND)
