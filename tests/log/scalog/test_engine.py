"""The declaration of Scalog has the messages that each core accepts."""

from __future__ import annotations

import random
from typing import Any

from logdb.cluster.client.database_client import DatabaseClient, DatabaseConfig
from logdb.cluster.mapping_server.config import MappingConfig
from logdb.cluster.mapping_server.server import MappingServer
from logdb.log.requests import ClientConfig
from logdb.log.scalog import messages
from logdb.log.scalog.aggregator.aggregator import _HANDLERS as AGGREGATOR_HANDLERS
from logdb.log.scalog.client.log_client import LogClient
from logdb.log.scalog.config import StorageConfig
from logdb.log.scalog.engine import ENGINE
from logdb.log.scalog.ordering.replica import _HANDLERS as ORDERING_HANDLERS
from logdb.log.scalog.storage.server import StorageServer
from logdb.transport.accepted_messages import accepted_by
from logdb.wire.envelopes import CLIENT, MAPPING


def handled(core: Any) -> Any:
    """The messages for which a core has a handler."""
    return core._handlers.keys()


def test_each_role_accepts_what_its_core_handles() -> None:
    storage = StorageServer(StorageConfig("s:1", ("o:1",)), {}, None)  # type: ignore[arg-type]
    assert accepted_by("storage", ENGINE) == handled(storage)
    assert accepted_by("aggregator", ENGINE) == AGGREGATOR_HANDLERS.keys()
    assert accepted_by("ordering", ENGINE) > ORDERING_HANDLERS.keys()
    log = ClientConfig("client-1", ("o:1",))
    client = LogClient(log, {}, random.Random(1))
    of_the_log = client._messages.keys() | client._answers | {messages.ChangeResponse}
    database = DatabaseClient(DatabaseConfig("client-1", ("m:1",), log, LogClient), {}, random.Random(1))
    assert accepted_by(CLIENT, ENGINE) == of_the_log | handled(database)
    server = MappingServer(MappingConfig("m:1", log, LogClient), {}, random.Random(1))
    assert accepted_by(MAPPING, ENGINE) == of_the_log | handled(server)
