"""The documentation site: `python docs/website.py build/site`, or `python3 dev.py docs`.

Sphinx renders the Markdown of the repository as it is (MyST, the theme Furo), beside the API reference that pdoc makes
of the docstrings (`reference`). Warnings are errors: a link to a page or a heading that does not exist, a page outside
of the navigation, a block in an unknown language.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

sys.path.insert(0, str(Path(__file__).resolve().parent))

import reference

ROOT: Final = Path(__file__).resolve().parent.parent
NAVIGATION: Final = {
    "Concepts and tutorial": (
        *("docs/tutorial", "docs/concepts", "docs/embedded", "docs/transactions"),
        *("docs/keys", "docs/tables"),
    ),
    "How to": (
        *("docs/how-to", "docs/applications", "docs/named-logs", "docs/retention", "docs/cold-tier"),
        *("docs/state-machines", "docs/log", "docs/spark"),
    ),
    "Reference": ("docs/python-api", "docs/cli", "docs/performance", "CHANGELOG"),
    "Operations": (
        *("docs/server", "docs/cluster", "docs/operations", "docs/capacity", "docs/disaster"),
        *("docs/dashboard", "docs/security", "SECURITY"),
    ),
    "Help": ("docs/troubleshooting", "docs/comparison"),
    "Internals": ("ARCHITECTURE", "docs/engines", "CONTRIBUTING"),
}
"""The pages by caption; pages that it does not name come last, under "Details"."""
PAGES: Final = ("*.md", "docs/*.md", "logdb/**/*.md", "tests/**/*.md", "benchmarks/**/*.md")
SETTINGS: Final[dict[str, Any]] = {
    "project": "LogDB",
    "author": "the authors of LogDB",
    "root_doc": "README",
    "extensions": ["myst_parser"],
    "myst_heading_anchors": 6,
    "html_theme": "furo",
    "html_title": "LogDB",
    "html_show_sphinx": False,
    "html_copy_source": False,
}
_LINK: Final = re.compile(r"\]\((?!https?:)([^)\s#]+)(?:#[^)\s]*)?\)")


def stage(folder: Path) -> None:
    """Copy the pages into a folder, with the files that they link to, the index, and a page of the API's modules."""
    pages = [page for glob in PAGES for page in sorted(ROOT.glob(glob)) if not _is_hidden(page)]
    for page in pages:
        copy(page, folder)
        for target in _LINK.findall(page.read_text()):
            file = (page.parent / target).resolve()
            if file.is_dir():
                copy_folder(file, folder)
            elif file.suffix != ".md":
                copy(file, folder)
    modules = "".join(
        f'- <a href="../api/{name.replace(".", "/")}.html"><code>{name}</code></a>\n' for name in reference.PAGES
    )
    (folder / "docs/python-api.md").write_text(
        f"# Python API\n\nGenerated from the docstrings; each page lists the public names.\n\n{modules}"
    )
    named = {page for group in NAVIGATION.values() for page in group}
    staged = {str(page.relative_to(folder).with_suffix("")) for page in folder.rglob("*.md")}
    others = tuple(sorted(staged - named - {"README"}))
    tree = "".join(_toctree(*group) for group in [*NAVIGATION.items(), ("Details", others)])
    readme = folder / "README.md"
    readme.write_text(f"{readme.read_text()}\n{tree}")


def copy(file: Path, folder: Path) -> None:
    """Copy a file of the repository to its place below a folder."""
    target = folder / file.relative_to(ROOT)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, target)


def copy_folder(source: Path, folder: Path) -> None:
    """Copy the files of a folder of the repository, and write a page with links to them, to which its links lead."""
    files = [file for file in sorted(source.iterdir()) if file.is_file() and file.suffix != ".md"]
    for file in files:
        copy(file, folder)
    page = folder / source.relative_to(ROOT).with_suffix(".md")
    page.parent.mkdir(parents=True, exist_ok=True)
    links = "".join(f"- [{file.name}]({source.name}/{file.name})\n" for file in files)
    page.write_text(f"# {source.relative_to(ROOT)}\n\n{links}")


def _is_hidden(page: Path) -> bool:
    return any(part.startswith(".") for part in page.relative_to(ROOT).parts)


def _toctree(caption: str, pages: tuple[str, ...]) -> str:
    listed = "\n".join(pages)
    return f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n:maxdepth: 1\n\n{listed}\n```\n"


def render(sources: Path, results: Path) -> None:
    """Write the pages of a folder as HTML. Raises SystemExit if there is a warning."""
    trees = results.parent / "doctrees"
    with patch_docutils(), docutils_namespace():  # so one process can build several sites
        app = Sphinx(sources, None, results, trees, "html", SETTINGS, None, sys.stderr, warningiserror=True)
        app.build()
    if app.statuscode:
        raise SystemExit("the documentation has warnings (above), which are errors")


def build(folder: Path) -> None:
    """Write the site into a folder. Raises SystemExit if there is a warning."""
    with tempfile.TemporaryDirectory() as staging:
        sources, results = Path(staging) / "sources", Path(staging) / "results"
        sources.mkdir()
        stage(sources)
        render(sources, results)
        (results / "index.html").write_text('<meta http-equiv="refresh" content="0; url=README.html">\n')
        reference.build(results / "api")
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(results, folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where to write the HTML")
    build(parser.parse_args().folder)
