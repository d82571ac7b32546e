"""The API reference, generated from the docstrings: `python docs/reference.py build/api`.

`python3 dev.py docs` makes it a part of the documentation site (`website`).

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

from logdb.log import LocalLog, MemoryLog, OrderedLog

PAGES = (
    "logdb",
    "logdb.aio",
    "logdb.errors",
    "logdb.keys",
    "logdb.log",
    "logdb.named_logs",
    "logdb.smr",
    "logdb.tables",
    "logdb_spark",
)
NO_SUBMODULE = r"!logdb_spark\."
"""`logdb_spark.session` is a function in `__all__`, and also a module."""


def prepare(page: ModuleType) -> None:
    """Give pdoc what it cannot find by itself.

    Names of the page that are imported on first use; the types of named tuples, which it looks for in the module that
    `NamedTuple` makes up for a constructor; and the contract's docstrings for the methods of engines that have none.
    """
    for name in page.__all__:
        thing = getattr(page, name)
        setattr(page, name, thing)
        if inspect.isclass(thing) and issubclass(thing, tuple) and hasattr(thing, "_fields"):
            module = sys.modules[thing.__module__]
            types = thing.__new__.__annotations__
            thing.__new__.__annotations__ = resolve_annotations(types, module, None, thing.__qualname__)
        if thing in (LocalLog, MemoryLog):
            for method in filter(inspect.isfunction, vars(thing).values()):
                method.__doc__ = method.__doc__ or inspect.getdoc(getattr(OrderedLog, method.__name__, None))


def build(folder: Path) -> None:
    """Write the reference of this checkout as HTML into a folder. Raises the first warning."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in PAGES:
            prepare(import_module(name))
        pdoc.render.configure(docformat="markdown", show_source=False, footer_text="LogDB")
        pdoc.pdoc(*PAGES, NO_SUBMODULE, output_directory=folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where to write the HTML")
    build(parser.parse_args().folder)
