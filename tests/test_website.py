"""The documentation site builds without a warning, and has every page."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import website

ROOT = Path(__file__).resolve().parent.parent


def test_the_site_has_every_page_and_the_reference(tmp_path: Path) -> None:
    website.build(tmp_path / "site")
    site = tmp_path / "site"
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("logdb/**/*.md")]:
        assert (site / page.relative_to(ROOT).with_suffix(".html")).exists(), page
    assert "README.html" in (site / "index.html").read_text()
    modules = (site / "docs/python-api.html").read_text()
    for name in website.reference.PAGES:
        link = f"api/{name.replace('.', '/')}.html"
        assert f'href="../{link}"' in modules
        assert (site / link).exists()


@pytest.mark.parametrize("link", ["missing.md", "README.md#missing", "missing.py"])
def test_a_broken_link_fails_the_build(tmp_path: Path, link: str, capsys: pytest.CaptureFixture[str]) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "README.md").write_text(f"# Title\n\nSee [that]({link}).\n")
    with pytest.raises(SystemExit, match="has warnings"):
        website.render(sources, tmp_path / "results")
    assert "missing" in capsys.readouterr().err
    (sources / "README.md").write_text("# Title\n")
    website.render(sources, tmp_path / "results")
