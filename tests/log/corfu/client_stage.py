"""Projections for tests, and a client core without servers: the test answers its messages."""

from __future__ import annotations

from random import Random
from typing import Any

from logdb.log.corfu.client.log_client import CorfuClient
from logdb.log.corfu.messages import ViewRequest, ViewResponse
from logdb.log.corfu.projection import NO_VIEW, Range, ShardConfig, Unit, View
from logdb.log.requests import ClientConfig
from tests.harness.script import Script


def view_of(*shards: ShardConfig, epoch: int = 2, **fields: Any) -> View:
    """A projection in which the positions belong to the live shards in turn."""
    live = tuple([config.shard for config in shards if config.is_live])
    view = NO_VIEW._replace(version=epoch, epoch=epoch, shards=shards, next_shard=9, ranges=(Range(1, live),))
    return view._replace(sequencer="q1", nonce=7, **fields)


def shard_of(number: int, *since: int, is_live: bool = True) -> ShardConfig:
    """A shard; its units are s11, s12, and so on for shard 1, and have the positions from these on."""
    units = [Unit(10 * number + at, f"s{number}{at}", one) for at, one in enumerate(since, 1)]
    return ShardConfig(number, tuple(units), len(units), is_live)


class Client(Script):
    """A client of one replica of the auxiliary. `settings`: as in `ClientConfig`."""

    def __init__(self, **settings: Any) -> None:
        config = ClientConfig("me", ("o1",), coalesce_calls=False, **settings)
        super().__init__(lambda journals: CorfuClient(config, journals, Random(1)))

    def configure(self, view: View) -> None:
        """The auxiliary answers the open requests for the projection."""
        requests = self.take(ViewRequest)
        assert requests
        for _, one in requests:
            self.give("o1", ViewResponse(one.request, view))
