"""The values of the ordering layer's replicated log: what they are, and to and from bytes.

A command says what its proposer knew; what it does is decided by `state.py` when it is applied, from the state that all
replicas have then. So a command that has been overtaken does nothing, and one that is chosen twice does nothing twice.

The cut is hot and as long as there are servers, so it is packed (all integers little-endian and 64 bits wide):

    cut := "C" time nshards npairs shards pairs
    shards := (shard epoch placed n)*        ascending by shard; n of the pairs are this shard's
    pairs := (segment end)*

Everything else is rare: "J" and the JSON of [name, field, ...].
"""

from __future__ import annotations

import json
import struct
import sys
from array import array
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from logdb.log.cores import Address, ProtocolViolation
from logdb.log.scalog import messages
from logdb.log.scalog.messages import Reconfiguration


class Policy(Enum):
    """What is done when a storage server fails (table 3.2). The first two have f + 1 members in a shard and need all of
    them for a record to be durable, the third 2f + 1 and any f + 1."""

    FINALIZE_AND_ADD = "finalize and add"
    REMOVE_AND_REPLACE = "remove and replace"
    MASK = "mask"


class Cut(NamedTuple):
    """Order what is durable. `time`: the leader's, ns since the epoch. `shards` and `pairs` as they are packed: (shard,
    epoch of the tally, its `placed`, number of pairs) and (segment, LSN after the last durable record), laid flat."""

    time: int
    shards: array[int]
    pairs: array[int]


class Found(NamedTuple):
    """The log's policy and f from now on, for new shards and new failures."""

    policy: Policy
    f: int


class Register(NamedTuple):
    """The storage server with this token is at `address`; it is a spare if it was not known."""

    token: int
    address: Address


class RegisterAggregator(NamedTuple):
    """There is an aggregator at `address`."""

    address: Address


class Changing(NamedTuple):
    """A client's change. `live`: spares that the leader has heard of lately, to be chosen before others."""

    id: int
    change: Reconfiguration
    live: tuple[int, ...]


class Failed(NamedTuple):
    """`server` of `shard` seems to have failed, as the shard was in `epoch`: carry out the policy. `live`: spares that
    the leader has heard of lately; no others are taken."""

    shard: int
    epoch: int
    server: int
    live: tuple[int, ...]


class Returned(NamedTuple):
    """`server`, which has no open segment in the live `shard`, is well again, as the shard was in `epoch`."""

    shard: int
    epoch: int
    server: int


class Joined(NamedTuple):
    """`server` has copied what was ordered before it came to `shard`."""

    shard: int
    server: int


class AggregatorFailed(NamedTuple):
    """The aggregator at `address` seems to have failed, as the view was in `version`."""

    address: Address
    version: int


Command = Cut | Found | Register | RegisterAggregator | Changing | Failed | Returned | Joined | AggregatorFailed
