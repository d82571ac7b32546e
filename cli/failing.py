"""How a command fails: with one line on stderr and an exit code, never with a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import click

from logdb import ConflictError, DatabaseInUse, LogDBError
from logdb.log.contract import LogFailed
from logdb.system.disk import described

from .hints import with_hint

NEGATIVE: Final = 1
USAGE: Final = 2
FAILED: Final = 3
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141

EXIT_CODES: Final = """\b
Exit codes:
  0    done
  1    the answer is no: not found, a condition failed, a conflict, damage or a difference found
  2    wrong usage or bad input
  3    the database or the operating system failed
  130  interrupted (Ctrl-C)"""


class Failure(click.ClickException):
    """Ends the command: `message` is printed on stderr as one line, `code` is the exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def code_of(error: click.ClickException) -> int:
    """The exit code."""
    return error.code if isinstance(error, Failure) else error.exit_code


class BadInput(Failure):
    """Wrong input; the message says where."""

    def __init__(self, message: str) -> None:
        super().__init__(message, USAGE)


class Negative(Failure):
    """The answer is no."""

    def __init__(self, message: str) -> None:
        super().__init__(message, NEGATIVE)


def one_line(message: str) -> str:
    """The message with every run of white space as one blank."""
    return " ".join(message.split())


def complain(error: click.ClickException) -> None:
    """The one line."""
    click.echo(f"error: {one_line(error.format_message())}", err=True)


@contextmanager
def explained() -> Iterator[None]:
    """Raise every error of the block as a Failure."""
    try:
        yield
    except (click.ClickException, click.exceptions.Exit):
        raise
    except (KeyboardInterrupt, click.Abort):
        raise Failure("interrupted", INTERRUPTED) from None
    except ConflictError as error:
        raise Negative(str(error)) from error
    except DatabaseInUse as error:
        serves = " serve" in error.holder
        advice = "name that server by --endpoints, or stop it" if serves else "close it there"
        raise Failure(
            f"{error.path} is open for writing by {error.holder}; {advice} (commands that only read work meanwhile)",
            FAILED,
        ) from error
    except (LogDBError, LogFailed) as error:
        raise Failure(str(error), FAILED) from error
    except BrokenPipeError:
        _end_quietly()
    except OSError as error:
        raise Failure(described(error), FAILED) from error
    except (ValueError, TypeError) as error:
        if os.environ.get("LOGDB_TRACEBACK"):
            raise
        raise Failure(str(error), USAGE) from error
    except Exception as error:
        if os.environ.get("LOGDB_TRACEBACK"):
            raise
        message = f"{type(error).__name__}: {error} (a bug in LogDB; LOGDB_TRACEBACK=1 prints the traceback)"
        raise Failure(message, FAILED) from error


def _end_quietly() -> NoReturn:
    """End after the reader of the output has closed it. The rest of the buffer is discarded without an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise click.exceptions.Exit(BROKEN_PIPE)


class OneLineGroup(click.Group):
    """The root group: runs a command, prints its error and ends the process with its exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        with explained():
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result

    def main(self, args: Sequence[str] | None = None, *others: Any, **kwargs: Any) -> Any:
        kwargs["standalone_mode"] = False
        try:
            code = super().main(args, *others, **kwargs)
        except click.ClickException as error:
            code = code_of(error)
            if isinstance(error, click.UsageError):
                error = Failure(with_hint(error, sys.argv[1:] if args is None else args), code)
            complain(error)
        except click.Abort:
            complain(Failure("interrupted", INTERRUPTED))
            code = INTERRUPTED
        sys.exit(code if isinstance(code, int) else 0)
