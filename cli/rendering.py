"""Output: tables and colours on a terminal, tab-separated lines in a pipe, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

import click

from .encoding import TEXT, Notation

TABLE_ROWS: Final = 500
"""A longer result is shown as several tables, so that its beginning appears at once."""

Cell = bytes | str | int | float | None


def line(document: Any) -> str:
    """One line of JSON."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False)


def emit(document: Any) -> None:
    """Print one line of JSON."""
    click.echo(line(document))


def counted(number: int, one: str, many: str = "") -> str:
    """A number of things, such as "1 row" and "2,000 rows". `many`: the plural, if that is not `one` with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def answer(as_json: bool, document: Mapping[str, Any], sentence: str) -> None:
    """One answer: the sentence for people, the document for programs."""
    if as_json:
        emit(document)
    else:
        click.echo(sentence)


def rows(
    columns: Sequence[str],
    table: Iterable[Sequence[Cell]],
    *,
    as_json: bool = False,
    notation: Notation = TEXT,
    tables: bool = True,
) -> None:
    """Prints rows one by one: a table on a terminal (if `tables`), else tab-separated lines, or one JSON object
    each.
    """
    write = sys.stdout.write  # click.echo flushes every line
    if as_json:
        for row in table:
            write(line({name: _json_cell(cell, notation) for name, cell in zip(columns, row, strict=True)}) + "\n")
    elif tables and sys.stdout.isatty():
        _tables(columns, iter(table), notation)
    else:
        for row in table:
            write("\t".join(_text_cell(cell, notation) for cell in row) + "\n")


def _tables(columns: Sequence[str], table: Iterator[Sequence[Cell]], notation: Notation) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    while some := list(islice(table, TABLE_ROWS)):
        shown = Table(box=SIMPLE_HEAD)
        for position, name in enumerate(columns):
            is_number = isinstance(some[0][position], int | float)
            shown.add_column(name, justify="right" if is_number else "left", overflow="fold")
        for row in some:
            shown.add_row(*(_styled(Text, cell, notation) for cell in row))
        console.print(shown)


def _styled(text: Any, cell: Cell, notation: Notation) -> Any:
    if cell is None:
        return text("(none)", style="dim italic")
    return text(_text_cell(cell, notation), style="cyan" if isinstance(cell, int) else "")


def _text_cell(cell: Cell, notation: Notation) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bytes):
        return notation.show(cell)
    return f"{cell:,.1f}" if isinstance(cell, float) else str(cell)


def _json_cell(cell: Cell, notation: Notation) -> Any:
    return notation.json(cell) if isinstance(cell, bytes) else cell


Tick = Callable[[int, int | None], None]
"""(done, total; None: the total is unknown)"""


@contextmanager
def progress(title: str, unit: str = "", *, is_bytes: bool = False) -> Iterator[Tick]:
    """A progress bar with its rate on stderr, if that is a terminal. `unit`: of what is counted."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn() if is_bytes else MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task: TaskID | None = None

    def tick(done: int, total: int | None) -> None:
        nonlocal task
        if task is None:
            bar.start()
            task = bar.add_task(title, total=total, rate="")
        speed = bar.tasks[0].speed
        rate = "" if speed is None else f"{speed / 1e6:,.1f} MB/s" if is_bytes else f"{speed:,.0f} {unit}/s"
        bar.update(task, completed=done, total=total, rate=rate)

    try:
        yield tick
    finally:
        if task is not None:
            bar.stop()


@contextmanager
def counting(title: str, unit: str) -> Iterator[Callable[[int], None]]:
    """As `progress`, for work that reports how much it has done since the last report."""
    done = 0
    with progress(title, unit) as tick:

        def add(count: int) -> None:
            nonlocal done
            done += count
            tick(done, None)

        yield add
