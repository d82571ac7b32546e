"""A work queue with leases: workers share the jobs of a log, and the jobs of a worker that is lost go to the others.

The workers are members of a group of consumers. A worker has some partitions of the log for as long as it sends
heartbeats. The result of a job and the cursor are written in one transaction, so each job has one result, also if a
worker that was taken for lost comes back: its transactions are refused.

    python3 -m examples.work_queue [DIRECTORY or HOST:PORT]
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections import Counter

import logdb
from logdb.named_logs import Entry

JOBS, WORKERS, PARTITIONS = 60, 3, 6
LEASE_S = 0.5


class WorkerLost(BaseException):
    """The worker has stopped, without a chance to leave the group."""


def work(db: logdb.Database, name: str, jobs: int | None = None) -> None:
    """Do the jobs of the partitions that this worker has, until all jobs are done. `jobs`: the number of jobs after
    which the worker is lost."""
    done = 0

    def do(txn: logdb.Transaction, job: Entry) -> None:
        nonlocal done
        if done == jobs:
            raise WorkerLost
        done += 1
        number = int(job.value)
        txn.append(b"results/%d/" % number, f"{name}: {number * number}".encode())

    queue = db.log("jobs")
    member = queue.group("workers", partitions=PARTITIONS, lease=LEASE_S)
    member.__enter__()  # without `with`, so that a worker that is lost does not leave the group
    try:
        while any(state.lag for state in queue.consumers()):
            member.run(do, timeout=LEASE_S)
    except WorkerLost:
        print(f"{name} is lost, and had partitions {member.partitions}")
    else:
        member.__exit__(None, None, None)


def main(argv: list[str] | None = None) -> None:
    """Let workers do all jobs; the first one is lost."""
    where = (sys.argv[1:] if argv is None else argv) or [tempfile.mkdtemp(prefix="logdb-work-queue-")]
    with logdb.connect(where[0]) if ":" in where[0] else logdb.open(where[0]) as db:
        db.log("jobs").extend([b"%d" % number for number in range(JOBS)])
        work(db, "worker 0", jobs=5)
        threads = [threading.Thread(target=work, args=(db, f"worker {number}")) for number in range(1, WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        results = [value.decode().split(": ") for _, value in db.scan(prefix=b"results/")]
        for name, count in sorted(Counter(name for name, _ in results).items()):
            print(f"{name} has done {count} jobs")
        assert sorted(int(result) for _, result in results) == [number * number for number in range(JOBS)]


if __name__ == "__main__":
    main()
