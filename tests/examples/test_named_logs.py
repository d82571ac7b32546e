"""The examples of named logs run, on a directory and on a server; each checks its own result."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

import logdb
from examples import materialized_view, outbox, work_queue
from tests.harness.served import Served

EXAMPLES = [materialized_view, outbox, work_queue]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.__name__)
def test_it_runs_on_a_directory(example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example.main([str(tmp_path / "db")])
    assert capsys.readouterr().out.count("\n") > 1


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.__name__)
def test_it_runs_on_a_server(example: ModuleType, served: Served) -> None:
    example.main([served.address])


def test_mails_are_sent_again_after_a_crash(tmp_path: Path) -> None:
    server = outbox.MailServer()
    with logdb.open(tmp_path / "db") as db:
        db.put(b"stock/apples", b"4")
        assert [outbox.sell(db, "customer", b"apples") for _ in range(5)] == [True] * 4 + [False]
        with pytest.raises(InterruptedError):
            outbox.send_mails(db, server, crashes=True)
        assert (server.requests, len(server.mails)) == (3, 3)
        assert outbox.send_mails(db, server) == 2
    assert (server.requests, len(server.mails)) == (5, 4)
