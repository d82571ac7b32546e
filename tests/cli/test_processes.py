"""Real processes: Ctrl-C, a reader that closes its pipe, two processes on one database, a shell in a pipe."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import logdb

LOGDB = (sys.executable, "-m", "logdb_cli")
TIMEOUT_S = 30


@contextmanager
def started(*args: object, **options: object) -> Iterator[subprocess.Popen[bytes]]:
    """`logdb ...` as a process that is gone at the end."""
    process = subprocess.Popen(
        [*LOGDB, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,  # type: ignore[call-overload]
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    """(exit code, stdout, stderr)"""
    output, errors = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, output, errors


def keys(path: Path) -> list[bytes]:
    with logdb.open(path) as db:
        return [key for key, _ in db.scan()]


def test_ctrl_c_in_the_middle_of_an_import_prints_how_to_continue(tmp_path: Path) -> None:
    db, rows = tmp_path / "data", tmp_path / "rows.csv"
    text = "id\n" + "".join(f"{number}\n" for number in range(1000))
    rows.write_text(text)
    os.mkfifo(tmp_path / "fifo.csv")
    with started("--db", db, "import", tmp_path / "fifo.csv", "--key-template", "{id:04d}", "--batch", 10) as process:
        with (tmp_path / "fifo.csv").open("w") as fifo:
            fifo.write("".join(text.splitlines(keepends=True)[:500]))
            fifo.flush()
            with logdb_when_there(db) as watching:
                changes = watching.watch(since=0, timeout=TIMEOUT_S)
                for _ in range(5):
                    next(changes)
            process.send_signal(signal.SIGINT)
            code, _, errors = ended(process)
    assert code == 130
    message = errors.decode()
    assert message.startswith("error: interrupted; "), message
    assert len(message.splitlines()) == 1
    skip = int(message.split("--skip ")[1])
    assert skip % 10 == 0
    assert keys(db) == [f"{number:04d}".encode() for number in range(skip)]
    command = [
        *LOGDB,
        "--db",
        str(db),
        "import",
        str(rows),
        "--key-template",
        "{id:04d}",
        "--skip",
        str(skip),
    ]
    subprocess.run(command, check=True, timeout=TIMEOUT_S, stdout=subprocess.DEVNULL)
    assert keys(db) == [f"{number:04d}".encode() for number in range(1000)]


@contextmanager
def logdb_when_there(path: Path) -> Iterator[logdb.Database]:
    """The database, read-only, as soon as another process has made it."""
    while True:
        try:
            with logdb.open(path, read_only=True) as db:
                yield db
                return
        except (logdb.NotADatabase, logdb.Unavailable, logdb.Corruption, FileNotFoundError):
            continue


def test_a_signal_during_a_batch_waits_for_it(tmp_path: Path) -> None:
    program = f"""
import logdb, os, signal, sys
from logdb_cli import main
put = logdb.Database.multi_put
def interrupted(self, items, **options):
    os.kill(os.getpid(), signal.SIGINT)
    return put(self, items, **options)
logdb.Database.multi_put = interrupted
sys.argv = ["logdb", "--db", {str(tmp_path / "data")!r}, "import", "-", "--format", "csv", "--batch", "2"]
main()
"""
    rows = b"key,value\na,1\nb,2\nc,3\n"
    done = subprocess.run(
        [sys.executable, "-c", program], input=rows, capture_output=True, check=False, timeout=TIMEOUT_S
    )
    assert done.returncode == 130
    assert done.stderr == b"error: interrupted; 2 rows are in: go on with --skip 2\n"
    assert keys(tmp_path / "data") == [b"a", b"b"]


def test_ctrl_c_in_a_watch_names_the_version_to_go_on_from(tmp_path: Path) -> None:
    with logdb.open(tmp_path / "data") as db:
        db.put(b"a", b"1")
        with started("watch", "--db", tmp_path / "data", "--since", 0, "--json") as process:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["version"] == 1
            db.put(b"b", b"2")
            assert json.loads(process.stdout.readline())["version"] == 2
            process.send_signal(signal.SIGINT)
            code, _, errors = ended(process)
    assert (code, errors) == (130, b"error: interrupted; continue with --since 2\n")


def test_a_watch_that_started_before_the_writer(tmp_path: Path) -> None:
    with logdb.open(tmp_path / "data") as db:
        db.put(b"a", b"1")
    with started("--db", tmp_path / "data", "watch", "--since", 0, "--limit", 2, "--json") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["version"] == 1
        subprocess.run([*LOGDB, "--db", tmp_path / "data", "put", "b", "2"], check=True, timeout=TIMEOUT_S)
        code, output, errors = ended(process)
    assert (code, errors) == (0, b"")
    assert json.loads(output)["version"] == 2


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    with logdb.open(tmp_path / "data") as db:
        for number in range(100):
            db.multi_put({b"%03d/%03d" % (number, other): b"x" * 100 for other in range(200)})
    for arguments in (
        ["scan"],
        ["scan", "--json"],
        ["log", "read", "1", "--count", "100", "--dir", tmp_path / "data"],
    ):
        with started(*(["--db", tmp_path / "data"] if arguments[0] == "scan" else []), *arguments) as process:
            assert process.stdout is not None
            assert process.stdout.read(10)
            process.stdout.close()
            process.stdout = None
            code, _, errors = ended(process)
        assert (code, errors) == (141, b""), arguments


def test_a_missing_reader_is_not_an_error(tmp_path: Path) -> None:
    with logdb.open(tmp_path / "data") as db:
        db.put(b"k", b"v")
    nobody, pipe = os.pipe()
    os.close(nobody)
    command = [*LOGDB, "--db", str(tmp_path / "data"), "scan"]
    done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, check=False, timeout=TIMEOUT_S)
    os.close(pipe)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_second_process_reads_while_a_writer_holds_the_database(tmp_path: Path) -> None:
    with started("--db", tmp_path / "data", "shell") as shell:
        assert shell.stdin is not None
        assert shell.stdout is not None
        say(shell.stdin, "put k v")
        assert shell.stdout.readline() == b"version 1\n"
        reading = subprocess.run(
            [*LOGDB, "--db", tmp_path / "data", "get", "k"],
            capture_output=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        assert (reading.returncode, reading.stdout) == (0, b"v\n")
        writing = subprocess.run(
            [*LOGDB, "--db", tmp_path / "data", "put", "k", "w"],
            capture_output=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        assert writing.returncode == 3
        assert f"process {shell.pid}" in writing.stderr.decode()
        say(shell.stdin, "get k")
        assert shell.stdout.readline() == b"v\n"
        assert ended(shell) == (0, b"", b"")


def say(stdin: IO[bytes], line: str) -> None:
    stdin.write(line.encode() + b"\n")
    stdin.flush()


def test_a_log_that_is_followed(tmp_path: Path) -> None:
    append = [*LOGDB, "log", "append", "--dir", str(tmp_path / "own")]
    subprocess.run([*append, "one"], check=True, timeout=TIMEOUT_S, stdout=subprocess.DEVNULL)
    with started("log", "subscribe", "--dir", tmp_path / "own") as process:
        assert process.stdout is not None
        assert process.stdout.readline().endswith(b"\tone\n")
        appending = threading.Thread(
            target=subprocess.run, args=([*append, "two"],), kwargs={"stdout": subprocess.DEVNULL}
        )
        appending.start()
        assert process.stdout.readline().endswith(b"\ttwo\n")
        appending.join()
        process.send_signal(signal.SIGINT)
        assert ended(process) == (130, b"", b"error: interrupted; go on with --from 3\n")
