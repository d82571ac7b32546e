"""Arguments that are a quantity with a unit: a time (`30m`, `7d`) or a size (`500MB`, `10GiB`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import click

SECONDS: Final = {"": 1, "s": 1, "ms": 0.001, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
BYTES: Final = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
BYTES_OF_1024: Final = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


class _Quantity(click.ParamType[object]):
    """A number and a unit without a space between. `units`: the value of each."""

    def __init__(self, name: str, units: Mapping[str, float], example: str) -> None:
        self.name, self._units, self._example = name, units, example

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        if not isinstance(value, str):
            return value
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]*)", value)
        if found is None or found[2] not in self._units:
            units = ", ".join(filter(None, self._units))
            self.fail(f"{value!r:.100} is not a {self.name} (such as {self._example}; units: {units})", param, ctx)
        return float(found[1]) * self._units[found[2]]


class _Size(_Quantity):
    """A size in whole bytes."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        number = super().convert(value, param, ctx)
        return int(number) if isinstance(number, float) else number


DURATION: Final = _Quantity("time", SECONDS, "30m or 7d")
"""A time, in seconds: a float."""
SIZE: Final = _Size("size", {**BYTES, **BYTES_OF_1024}, "500MB or 10GiB")
"""A size, in bytes: an int."""
