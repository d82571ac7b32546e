"""Processes that take ports at the same time take different ones."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from tests.harness.ports import BLOCK, free_ports
ports = free_ports()
print(*(next(ports) // BLOCK for _ in range(50)), flush=True)
sys.stdin.read()
"""


def test_each_process_has_a_block_of_ports() -> None:
    command = [sys.executable, "-c", PROGRAM]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    try:
        blocks = [set(process.stdout.readline().split()) for process in processes if process.stdout is not None]
    finally:
        for process in processes:
            process.communicate()
    assert [len(block) for block in blocks] == [1, 1, 1]
    assert len(set.union(*blocks)) == 3
