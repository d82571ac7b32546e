"""Dates as people write them: one text means one point in time, wherever it is given."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner
from logdb_cli.commands import cli

import logdb
from logdb.api import timestamps

NEW_YORK = ZoneInfo("America/New_York")


@pytest.fixture
def _in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("_in_new_york")
@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("2024-05-01T12:30:00Z", None, dt.datetime(2024, 5, 1, 12, 30, tzinfo=dt.UTC)),
        ("2024-05-01T12:30+02:00", NEW_YORK, dt.datetime(2024, 5, 1, 10, 30, tzinfo=dt.UTC)),
        ("2024-05-01 12:30", None, dt.datetime(2024, 5, 1, 16, 30, tzinfo=dt.UTC)),
        ("2024-05-01T12:30", dt.UTC, dt.datetime(2024, 5, 1, 12, 30, tzinfo=dt.UTC)),
        ("2024-12-01T12:30", ZoneInfo("Europe/Berlin"), dt.datetime(2024, 12, 1, 11, 30, tzinfo=dt.UTC)),
        ("20240501", dt.UTC, dt.datetime(2024, 5, 1, tzinfo=dt.UTC)),
        ("1714566600", NEW_YORK, dt.datetime(2024, 5, 1, 12, 30, tzinfo=dt.UTC)),
        ("1714566600.000001", None, dt.datetime(2024, 5, 1, 12, 30, 0, 1, tzinfo=dt.UTC)),
        ("0", None, dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
    ],
)
def test_a_text_means_one_time(text: str, zone: dt.tzinfo | None, expected: dt.datetime) -> None:
    found = timestamps.parsed(text, zone)
    assert (found, found.tzinfo) == (expected, dt.UTC)


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "nan", "inf", "-1e300", "1e18", "2024-13-01", "0001-01-01T00:00+14:00", "9999-12-31T23-14:00"],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time such as 2024-05-01T12:30:00"):
        timestamps.parsed(text, dt.UTC)


@pytest.mark.usefixtures("_in_new_york")
def test_the_same_text_and_date_give_the_same_version(tmp_path: Path) -> None:
    with logdb.open(tmp_path / "data") as db:
        db.put(b"k", b"v")
        date = timestamps.moment(time.time_ns()).astimezone(NEW_YORK).replace(tzinfo=None)
        assert db.at(time=date).version == 1
    shown = CliRunner().invoke(cli, ["--db", str(tmp_path / "data"), "get", "k", "--at-time", date.isoformat()])
    assert (shown.exit_code, shown.stdout) == (0, "v\n")
