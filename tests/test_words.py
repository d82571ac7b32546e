"""Names are made of the field's words, and sentences have components as subjects: the old stems do not come back."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("logdb", "cli", "spark_export", "benchmarks")

BANNED = {
    "accuse", "alarm", "beware", "canvass", "canvassed", "council", "desert", "desk", "fed", "foresee", "heard",
    "helper", "helpers", "homeless", "insist", "knock", "lane", "lanes", "loops", "mail", "manager", "most", "nag",
    "nobody", "parcel", "parcels", "patience", "piece", "pieces", "quarrelled", "relieve", "silently", "somebody",
    "tell", "telling", "told", "upward", "utils", "wanted", "whom",
}  # fmt: skip
"""ARCHITECTURE.md, "Names are those of the field"."""
ORDINARY = {"loops", "mail", "most", "wanted"}
"""Stems that are banned in the interface of a product module only: tests and local variables may use them."""


BANNED_PHRASES = re.compile(
    r"\b(?:nobody|somebody|no one|whoever|whomever|told)\b"  # a component has a name; servers send, return, report
    r"|(?:^|[.:;] |\"\"\")(?:Who|Whoever) (?![^.]*\?)"  # a clause is no subject
    r"|(?:# |[.:;] |\"\"\")What (?![^.]*\?)"
    r"|\"\"\"(?:(?:It|They) |(?:Those|These) (?:of|are|were|that|which)\b|So (?:many|much|long)\b)"  # no noun
    r"|\b(?:for ever|in vain)\b",  # moods
    re.MULTILINE,
)


def words_of(name: str) -> set[str]:
    """The words of a name in snake case or camel case, in small letters."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def names_in(path: Path, *, local: bool = False) -> Iterator[tuple[int, str]]:
    """(line, name) of the file, its classes, functions and parameters; `local`: of its variables and attributes."""
    if not local:
        yield 1, path.stem
    for node in ast.walk(ast.parse(path.read_text())):
        if local and isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif local and isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif not local and isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif not local and isinstance(node, ast.arg):
            yield node.lineno, node.arg


def banned_names(path: Path, *, is_test: bool = False) -> list[str]:
    """The names with a banned stem. A test may use ordinary words in its names, and any in its variables."""
    found = [each for each in names_in(path) if words_of(each[1]) & (BANNED - ORDINARY if is_test else BANNED)]
    if not is_test:
        found += [each for each in names_in(path, local=True) if words_of(each[1]) & (BANNED - ORDINARY)]
    return [f"{path.name}:{line}: {name}" for line, name in found]


def found_in_texts(pattern: re.Pattern[str], source: str) -> Iterator[tuple[int, re.Match[str]]]:
    """(line, match) in the comments and docstrings of a file."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.string.startswith('"""')):
            for match in pattern.finditer(token.string):
                yield token.start[0] + token.string.count("\n", 0, match.start()), match


def files_named(source: str) -> list[tuple[int, str]]:
    """(line, name) of each Python file that a comment or a docstring mentions in backticks."""
    return [(line, match[1]) for line, match in found_in_texts(re.compile(r"`([\w/]+\.py)`"), source)]


def source_files() -> list[Path]:
    return sorted(
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if not path.stem.endswith(("_pb2", "_pb2_grpc"))
    )


def files_of_tests() -> list[Path]:
    return sorted((ROOT / "tests").rglob("*.py"))


def test_no_name_has_a_banned_stem() -> None:
    assert [found for path in source_files() for found in banned_names(path)] == []
    assert [found for path in files_of_tests() for found in banned_names(path, is_test=True)] == []


@pytest.mark.parametrize(
    "line", ["class Desk: ...", "def _insist() -> None: ...", "def f(patience_s: int) -> None: ...", "told = 1"]
)
def test_a_banned_stem_is_seen(line: str, tmp_path: Path) -> None:
    path = tmp_path / "planted.py"
    path.write_text(line)
    assert len(banned_names(path)) == 1


def test_no_sentence_has_a_banned_phrase() -> None:
    assert [
        f"{path.relative_to(ROOT)}:{line}: {match[0].strip()}"
        for path in [*source_files(), *files_of_tests()]
        for line, match in found_in_texts(BANNED_PHRASES, path.read_text())
    ] == []


@pytest.mark.parametrize(
    "text",
    [
        "# nobody waits for it",
        '"""Who lacks links begins behind them."""',
        "# it is told",
        '"""What is not answered is sent again."""',
        "# What is durable stays.",
        '"""A replica. What it has not is copied."""',
        '"""It had waited for ever."""',
        '"""They are sent again."""',
        '"""Those of its parts."""',
        '"""So many are kept."""',
        "# the lock is held for ever",
    ],
)
def test_a_banned_phrase_is_seen(text: str) -> None:
    assert list(found_in_texts(BANNED_PHRASES, text + "\n")) != []


@pytest.mark.parametrize(
    "text", ['"""What is the tail? The newest GSN."""', '"""These replicas vote."""', "# the leader sends it again"]
)
def test_an_ordinary_phrase_is_permitted(text: str) -> None:
    assert list(found_in_texts(BANNED_PHRASES, text + "\n")) == []


def test_a_file_that_is_mentioned_exists() -> None:
    existing = {
        f"/{path.relative_to(ROOT)}" for folder in (*FOLDERS, "tests") for path in (ROOT / folder).rglob("*.py")
    }
    missing = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in [*source_files(), *files_of_tests()]
        for line, name in files_named(path.read_text())
        if not any(known.endswith(f"/{name}") for known in existing)
    ]
    assert missing == []


def test_a_file_that_is_gone_is_seen() -> None:
    assert files_named('"""What `gone.py` says.\n\nSee `a/b.py`."""\n') == [(1, "gone.py"), (3, "a/b.py")]
