"""The API reference, generated from the docstrings: `python docs/reference.py build/api`, or `python3 dev.py docs`.

pdoc renders the public names (`__all__`) of the modules in `PAGES`. Its warnings, such as a type that it cannot
resolve, are errors.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import warnings
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pdoc
from pdoc.doc_types import resolve_annotations

PAGES = ("logdb", "logdb.aio", "logdb.errors", "logdb.log", "spark_export")


def prepare(page: ModuleType) -> None:
    """Import the names of a page that are imported on first use, and resolve the types of its named tuples.

    pdoc looks for those types in the module that `NamedTuple` makes up for a constructor, where they are not defined.
    """
    for name in page.__all__:
        thing = getattr(page, name)
        setattr(page, name, thing)
        if inspect.isclass(thing) and issubclass(thing, tuple) and hasattr(thing, "_fields"):
            module = sys.modules[thing.__module__]
            types = thing.__new__.__annotations__
            thing.__new__.__annotations__ = resolve_annotations(types, module, None, thing.__qualname__)


def build(folder: Path) -> None:
    """Write the reference as HTML into a folder. Raises the first warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in PAGES:
            prepare(import_module(name))
        pdoc.render.configure(docformat="markdown", show_source=False, footer_text="LogDB")
        pdoc.pdoc(*PAGES, output_directory=folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where to write the HTML")
    build(parser.parse_args().folder)
