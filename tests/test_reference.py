"""The API reference builds without a warning, and every public name says what a caller must know."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

import pdoc.doc

from docs.reference import PAGES, prepare

ROOT = Path(__file__).resolve().parent.parent
OURS = ("logdb", "spark_export")
REFERENCE = re.compile(r"\b(?:[Aa]s|[Ss]ee|[Ss]ame as) `([\w.]+)`")
CHECKS = re.compile(r"(?:check|checked)_\w+|key_range|scan_ranges|watched_keys|listed|nanoseconds|endpoints_of")
"""Functions that check an argument and raise TypeError or ValueError."""


@cache
def documented() -> dict[str, pdoc.doc.Doc[Any]]:
    """Everything that the reference shows, by its full name."""
    found: dict[str, pdoc.doc.Doc[Any]] = {}

    def walk(doc: pdoc.doc.Doc[Any]) -> None:
        found[doc.fullname] = doc
        if isinstance(doc, pdoc.doc.Namespace):
            for member in doc.members.values():
                if not member.name.startswith("_") and member.taken_from[0].startswith(OURS):
                    walk(member)

    for page in PAGES:
        module = import_module(page)
        prepare(module)
        walk(pdoc.doc.Module(module))
    return found


def functions() -> Iterator[tuple[str, pdoc.doc.Function]]:
    for name, doc in documented().items():
        if isinstance(doc, pdoc.doc.Function) and isinstance(doc.obj, FunctionType | classmethod | staticmethod):
            yield name, doc


def source_of(function: Callable[..., Any]) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))


def raised(tree: ast.AST) -> set[str]:
    """The errors that a function raises itself, but for those that it makes elsewhere."""
    calls = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc is not None]
    named = [call.func if isinstance(call, ast.Call) else call for call in calls]
    return {node.id for node in named if isinstance(node, ast.Name) and node.id[0].isupper()}


def may_fail(tree: ast.AST) -> bool:
    """Whether it checks arguments or asks what is beneath a face, each of which can fail."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if re.match(r"(self\._)?host\.\w+$|self\._host\.\w+$", called) or CHECKS.fullmatch(called.split(".")[-1]):
                return True
    return False


def said(name: str, docstring: str, seen: set[str] | None = None) -> str:
    """The docstring with those to which it refers, each once."""
    seen = set() if seen is None else seen
    seen.add(name)
    text = docstring
    for target in REFERENCE.findall(docstring):
        parent = name.rpartition(".")[0]
        for whole in (target, f"{parent}.{target}", f"{parent.rpartition('.')[0]}.{target}"):
            if whole in documented() and whole not in seen:
                text += "\n" + said(whole, documented()[whole].docstring, seen)
                break
    return text


def wrong(name: str, docstring: str, function: Callable[..., Any]) -> list[str]:
    """The parts that the docstring lacks."""
    text, tree = said(name, docstring), source_of(function)
    parameters = [each for each in inspect.signature(function).parameters if each not in ("self", "cls")]
    missing = [each for each in parameters if not re.search(rf"`[^`]*\b{each}\b[^`]*`", text)]
    unnamed = sorted(error for error in raised(tree) if error not in text)
    if may_fail(tree) and "aises" not in text:
        unnamed.append("what it raises")
    return [f"does not name {each}" for each in (*missing, *unnamed)]


def test_it_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "docs/reference.py", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "logdb.html").read_text()
    assert 'id="Database.multi_scan"' in page
    assert 'id="connect"' in page
    assert 'id="connect_async"' in (tmp_path / "logdb" / "log.html").read_text()
    pages = {str(page.relative_to(tmp_path)) for page in tmp_path.rglob("*.html")}
    assert pages == {"index.html", *(f"{name.replace('.', '/')}.html" for name in PAGES)}


def test_every_public_name_has_a_docstring() -> None:
    """The docstring of a module names its constants, that of a named tuple its fields."""
    undescribed = []
    for name, doc in documented().items():
        if isinstance(doc, pdoc.doc.Module):
            constants = [each.name for each in doc.variables]
            undescribed += [f"{name}.{each}" for each in constants if f"`{each}`" not in doc.docstring]
        elif not isinstance(doc, pdoc.doc.Variable) and not doc.docstring.strip():
            undescribed.append(name)
        if isinstance(doc, pdoc.doc.Class):
            fields = getattr(doc.obj, "_fields", ())
            undescribed += [f"{name}.{field}" for field in fields if f"`{field}`" not in doc.docstring]
    assert undescribed == []


def test_a_docstring_names_arguments_and_errors() -> None:
    found = {name: wrong(name, doc.docstring, doc.obj) for name, doc in functions()}
    assert len(found) > 100
    assert {name: what for name, what in found.items() if what} == {}


def test_what_a_docstring_misses_is_seen() -> None:
    def read(self: Any, key: bytes, default: bytes) -> None:
        """The value of `key`. Raises TypeError."""
        self.check_key(key)
        raise KeyError(key)

    assert wrong("read", read.__doc__ or "", read) == ["does not name default", "does not name KeyError"]
    assert wrong("read", "The value of `key`, or `default`: KeyError.", read) == ["does not name what it raises"]
