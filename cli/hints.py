"""Hints for a database or a cluster that was given as an argument of a command, where an option names it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence

import click

from logdb.embedded.directory import IDENTITY


def with_hint(error: click.UsageError, words: Sequence[str]) -> str:
    """The message of the error of a command line of these `words`, with the command line that was probably meant."""
    message = error.format_message()
    names_place = any(word.split("=")[0] in ("--db", "--dir") for word in words)
    if isinstance(error, (click.BadParameter, click.NoSuchOption)) or error.ctx is None or names_place:
        return message
    option = _option(error.ctx.command)
    place = next((word for word in words if _is_place(word, message, error.ctx.command)), None)
    if option is None or place is None or message != error.message:
        return message
    others = list(words)
    others.remove(place)
    meant = ["logdb", option, place, *others] if option == "--db" else ["logdb", *others, option, place]
    return f"{message.removesuffix('.')} (did you mean `{shlex.join(meant)}`?)"


def _option(command: click.Command) -> str | None:
    """The option that names what a command, or a command of a group, works on."""
    commands = [command, *(command.commands.values() if isinstance(command, click.Group) else ())]
    options = {name for each in commands for parameter in each.params for name in parameter.opts}
    return next((name for name in ("--db", "--dir") if name in options), None)


def _is_place(word: str, message: str, command: click.Command) -> bool:
    """Whether a word is the path of a database, or one that the command could not use."""
    if os.path.isfile(os.path.join(word, IDENTITY)):  # unlike Path.is_file, False where it is not permitted
        return True
    if word not in re.split(r"[\s'()]+", message):
        return False
    works_alone = isinstance(command, click.Group) and command.invoke_without_command
    return works_alone or os.sep in word or os.path.isdir(word)
