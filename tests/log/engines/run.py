"""Runs the engine `counter` in a separate process, because the tables of all engines are computed when modules are
loaded: real servers and clients, the configuration, layout and status. Prints results that a test compares."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import logdb.log
import logdb.log.engine as seam

logdb.log.__path__.append(str(Path(__file__).parent))
seam.ENGINES = (*seam.ENGINES, "counter")  # type: ignore[misc]

from logdb_cli.servers import RoleCommands  # noqa: E402

from logdb.admin.changes import Operator  # noqa: E402
from logdb.admin.layout import Layout  # noqa: E402
from logdb.clients.background_loop import in_shared_loop  # noqa: E402
from logdb.errors import Unavailable  # noqa: E402
from logdb.node.config import ClusterFile, Misconfigured  # noqa: E402
from logdb.node.metrics import NodeMetrics  # noqa: E402
from logdb.node.node import Node, NodeConfig  # noqa: E402
from logdb.wire.envelopes import VERSION, Hello, pack_hello, refusal_reason, unpack  # noqa: E402


async def started(server: Node) -> Node:
    """Start the server in the shared loop."""
    await server.start()
    server.running = asyncio.create_task(server.run())  # type: ignore[attr-defined]
    return server


def main(path: Path, port: int) -> None:
    """Configure a cluster, start its server, append, stop, and start again."""
    print(RoleCommands().list_commands(None))  # type: ignore[arg-type]
    layout = Layout.make(path, seam.engine_of("counter").operations.default_shape, {}, port)
    config = layout.file.server("keeper", "k1")
    print(layout.file.engine.name, config.role, config.step)  # type: ignore[attr-defined]
    for _ in range(2):
        server = in_shared_loop(started(Node(NodeConfig((config,)))))
        with logdb.log.connect(layout.endpoints, timeout=10) as log:
            print(list(log.append([(1, b"a"), (2, b"b" * 1000)])), log.tail())
        status = Operator((), layout).status()
        print(status.tail, [(one.name, one.role, one.state) for one in status.servers])
        print([metric.samples[0].value for metric in NodeMetrics(server).collect() if metric.name == "counter_end"])
        in_shared_loop(server.close())
    mine = Hello(VERSION, "x", "storage", "a:1")
    print(refusal_reason(mine, unpack(pack_hello(Hello(VERSION, "x", "keeper", "b:1", engine="counter")))))
    file = path / "wrong.toml"
    for wrong in ('engine = "none"', 'engine = "counter"\nstep = 0', 'policy = "mask"\nengine = "counter"'):
        file.write_text(f'[cluster]\nname = "x"\n{wrong}\n[keeper.k1]\nlisten = "127.0.0.1:{port}"\n')
        try:
            ClusterFile(file)
        except (Misconfigured, Unavailable) as error:
            print(str(error).partition("wrong.toml:")[2])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
