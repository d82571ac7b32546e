"""Writing checkpoints beside writers, and merging their runs: the part that every owner of a checkpoint shares.

Paced by `Pacer`: a directory's checkpointer (`embedded/checkpointer.py`) delays acknowledgements, a mapping server's
(`node/checkpoints.py`) the reading of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable

from logdb.store.checkpoint import Checkpoint
from logdb.store.overlay import Overlay
from logdb.store.pacing import Pacer


def merge_steps(checkpoint: Checkpoint) -> Generator[int, None, None]:
    """Run all merges that are due, step by step; yields the number of keys that each step has merged."""
    found = True
    while found:
        found = False
        for keys in checkpoint.merge():
            found = True
            yield keys


def write_paced(
    checkpoint: Checkpoint,
    pacer: Pacer,
    frozen: Overlay,
    covers: int,
    state: Iterable[tuple[bytes, bytes | None]],
    progress: Callable[[int], None],
) -> None:
    """Write a checkpoint of an overlay; it covers the log up to `covers`. Meanwhile `pacer` slows writers.

    `progress`: called with the number of keys written since its last call; an exception from it ends the write.
    """
    keys = max(len(frozen.newest), 1)
    pacer.begin(frozen.size)
    try:
        checkpoint.begin(max(covers, frozen.last))
        for count in checkpoint.write(frozen):
            pacer.took(frozen.size * count / keys)
            progress(count)
        checkpoint.finish(covers, state)
    finally:
        pacer.end()
