"""Bugs planted in the file operations of a map, which a power failure at the wrong moment must expose."""

from __future__ import annotations

from typing import Any
from unittest import mock

from logdb.store.checkpoint import Checkpoint
from logdb.store.files import MapFiles
from logdb.store.manifest import Manifest
from tests.harness import planting

PLANTED: planting.Plants = {}


@planting.planted(MapFiles, "sync", PLANTED)
def name_a_run_before_it_is_synced(right: Any, files: MapFiles, number: int) -> None: ...


@planting.planted(MapFiles, "replace_manifest", PLANTED)
def rename_a_manifest_before_it_is_synced(right: Any, files: MapFiles, content: bytes) -> None:
    with mock.patch.object(files._disk, "sync"):
        right(files, content)


@planting.planted(MapFiles, "replace_manifest", PLANTED)
def remove_runs_before_the_manifest_is_durable(right: Any, files: MapFiles, content: bytes) -> None:
    with mock.patch.object(files._disk, "sync_directory"):
        right(files, content)


@planting.planted(Checkpoint, "_commit", PLANTED)
def remove_runs_before_the_manifest_is_replaced(right: Any, one: Checkpoint, manifest: Manifest, runs: Any) -> None:
    for run in set(one._snapshot.runs).difference(runs):
        one._files.remove(run.info.number)
    right(one, manifest, runs)
