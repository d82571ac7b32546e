"""Worker processes: each carries out one task after another, and ends when its parent process does.

A worker may crash on damaged pages of LMDB without ending its parent, and does not share the parent's interpreter lock.
They are started with `subprocess`, not `multiprocessing`, which would run the caller's program again in each of them.
They import the LogDB of their parent, and nothing from the current directory (-P). Tasks and answers are lines of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

Answer = dict[str, Any]
OnAnswer = Callable[[Answer], None]


class WorkerEnded(Exception):
    """A worker ended in the middle of a task. `status`: as of `subprocess.Popen`; `last_line`: of its errors."""

    def __init__(self, status: int, last_line: str) -> None:
        self.status, self.last_line = status, last_line
        super().__init__(last_line or f"its process ended with status {status}")


class Worker:
    """A process that runs `module`, which calls `serve`. Raises OSError if it cannot be started."""

    def __init__(self, module: str, files: Sequence[int] = ()) -> None:
        places = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places))}
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                pass_fds=files,
                env=environment,
            )
        except BaseException:
            self._errors.close()
            raise

    def do(self, task: Mapping[str, Any], progress: OnAnswer) -> Answer:
        """The answer to a task. `progress`: called with each earlier message. Raises WorkerEnded."""
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        try:
            requests.write(json.dumps(task).encode() + b"\n")
            requests.flush()
            for line in answers:
                answer: Answer = json.loads(line)
                if "progress" not in answer:
                    return answer
                progress(answer)
        except (OSError, ValueError):
            pass  # it has ended: see below
        status = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        raise WorkerEnded(status, lines[-1] if lines else "")

    def end(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Release the pipes and files of a process that has ended."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # of unsent output
                    pipe.close()
        self._errors.close()


def do_all(
    workers: Sequence[Worker], tasks: Sequence[Mapping[str, Any]], progress: OnAnswer, first: Sequence[int] = ()
) -> list[Answer | Exception]:
    """The answer, or the exception, of each task. Each worker takes the next task; the first worker begins with the
    tasks `first`.

    `progress`: called in this thread with answers and earlier messages. When this raises (Ctrl-C), end the workers:
    then its threads end, too.
    """
    results: list[Answer | Exception] = [{}] * len(tasks)
    waiting: SimpleQueue[int | None] = SimpleQueue()
    results_queue: SimpleQueue[tuple[int, Answer | Exception]] = SimpleQueue()
    for number in range(len(tasks)):
        if number not in first:
            waiting.put(number)

    def work(worker: Worker, own: list[int]) -> None:
        while True:
            number = own.pop(0) if own else waiting.get()
            if number is None:
                return
            try:
                results_queue.put((number, worker.do(tasks[number], lambda answer: results_queue.put((-1, answer)))))
            except Exception as error:
                results_queue.put((number, error))

    threads = [
        threading.Thread(target=work, args=(worker, [*first] if worker is workers[0] else []), daemon=True)
        for worker in workers
    ]
    for thread in threads:
        waiting.put(None)
        thread.start()
    left = len(tasks)
    while left:
        number, answer = results_queue.get()
        if number < 0:
            assert isinstance(answer, dict)
            progress(answer)
        else:
            results[number] = answer
            left -= 1
            if isinstance(answer, dict):
                progress(answer)
    for thread in threads:
        thread.join()
    return results


def serve(do: Callable[[Mapping[str, Any], OnAnswer], Answer]) -> None:
    """Carry out the tasks of the parent process until it closes the pipe or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes: the parent handles it
    tasks: SimpleQueue[bytes] = SimpleQueue()
    output, sys.stdout = sys.stdout.buffer, sys.stderr

    def read() -> None:
        for line in sys.stdin.buffer:
            tasks.put(line)
        os._exit(0)

    def send(answer: Answer) -> None:
        output.write(json.dumps(answer).encode() + b"\n")
        output.flush()

    threading.Thread(target=read, daemon=True).start()
    while True:
        send(do(json.loads(tasks.get()), send))
