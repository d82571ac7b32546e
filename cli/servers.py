"""`logdb serve ROLE`: one server of a cluster, in this process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from logdb.cores.effects import ProtocolViolation
from logdb.errors import LogDBError
from logdb.log.contract import LogFailed
from logdb.system.disk import described
from logdb.system.event_loop import run
from logdb.system.logging_setup import log_to_stderr

from .failing import FAILED, BadInput, Failure

if TYPE_CHECKING:
    from logdb.node.node import Node, NodeConfig

STOPPED: Final = 4
ENDS: Final = """\b
Exit codes: 0 after SIGTERM or Ctrl-C; 2 if the configuration is wrong; 3 after a failure that a restart may
resolve; 4 if an operator must examine the server before a restart: its journals are damaged, or contradict
other servers."""


def _configured(path: Path, role: str, name: str) -> NodeConfig:
    from logdb.node.config import ClusterFile, Misconfigured

    try:
        return ClusterFile(path).node(role, name)
    except Misconfigured as error:
        raise BadInput(str(error)) from error


def _ready(node: Node) -> None:
    config = node.config
    click.echo(f"ready: {config.title} of cluster {config.first.cluster} at {config.address}")


def _disk_failed(role: str, name: str, reason: str) -> Failure:
    return Failure(f"{role} {name}: its disk failed ({reason}); start the server again when the disk works", FAILED)


def _serve(path: Path, role: str, name: str) -> None:
    try:
        from logdb.node.process import serve
        from logdb.node.storage import DamagedJournals
        from logdb.transport.node_authenticator import Insecure
    except ImportError as error:
        raise Failure(f"{error.name} is not installed: pip install 'logdb[cluster]'", FAILED) from error
    config = _configured(path, role, name)
    log_to_stderr(name)
    try:
        run(serve(config, _ready))
    except DamagedJournals as error:
        raise Failure(str(error), STOPPED) from error
    except Insecure as error:
        raise BadInput(f"{role} {name}: {error}") from error
    except LogDBError as error:
        raise Failure(str(error), FAILED) from error
    except LogFailed as error:
        raise _disk_failed(role, name, str(error)) from error
    except OSError as error:
        raise _disk_failed(role, name, described(error)) from error
    except (ProtocolViolation, AssertionError) as error:
        if os.environ.get("LOGDB_TRACEBACK"):
            raise
        raise Failure(
            f"{role} {name} has stopped in an impossible state ({str(error) or 'an assertion'}): this is a bug in "
            "LogDB, or its disk has returned wrong data (LOGDB_TRACEBACK=1 prints the traceback)",
            STOPPED,
        ) from error


def _command(role: str, title: str) -> click.Command:
    @click.command(role, help=f"Run {title} in this process, until SIGTERM or Ctrl-C.\n\n{ENDS}")
    @click.option(
        "--config",
        "path",
        required=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The cluster's configuration (TOML).",
    )
    @click.option("--name", required=True, metavar="NAME", help=f"The server's name: its table is [{role}.NAME].")
    def serve_role(path: Path, name: str, **_: Any) -> None:
        _serve(path, role, name)

    return serve_role


class RoleCommands(click.Group):
    """A command for each role of a cluster's servers. Engines are loaded when their commands are listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names."""
        return list(_titles())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that role."""
        title = _titles().get(cmd_name)
        return None if title is None else _command(cmd_name, title)


def _titles() -> dict[str, str]:
    """The roles of all engines, by name, with their titles."""
    from logdb.log.engine import all_engines
    from logdb.node.roles import roles_of
    from logdb.wire.envelopes import NODE

    engines = all_engines()
    of_engines = {role.name: role.title for engine in engines for role in engine.roles.values()}
    mapping = {role.name: role.title for role in roles_of(engines[0]).values()}
    return of_engines | mapping | {NODE: "a node, with servers of several roles"}
