"""Counts how often objects of a class are compared: a client that does so for each of many is quadratic."""

from __future__ import annotations

from types import ModuleType

import pytest


def comparisons_of(name: str, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The objects with which those of a class of `module` are compared from now on."""
    compared: list[object] = []

    def is_same(one: object, other: object) -> bool:
        compared.append(other)
        return one is other

    right = getattr(module, name)
    body = {"__slots__": (), "__eq__": is_same, "__hash__": object.__hash__}
    monkeypatch.setattr(module, name, type(name, (right,), body))
    return compared
