"""Where backups are kept: a directory, or an object store through fsspec. A file appears whole or not at all."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol

from logdb.errors import BackupError, DatabaseInUse, Unavailable
from logdb.system import directories
from logdb.system.disk import Disk, described

STAGING_SUFFIX: Final = ".tmp"
_FILE_URL: Final = "file://"


class Place(Protocol):
    """A folder of files. Every method raises Unavailable when the disk or the store fails."""

    def location(self, name: str = "") -> str:
        """The path or the address of a file, or of the folder."""

    def sizes(self) -> dict[str, int]:
        """The size in bytes of each file, by its name; empty if the folder does not exist."""

    def read(self, name: str) -> bytes:
        """The content of a file. Raises FileNotFoundError."""

    def write(self, name: str, content: bytes) -> None:
        """Write a file; it is durable when this returns. Makes the folder."""

    def remove(self, name: str) -> None:
        """Remove a file."""

    def lock(self) -> contextlib.AbstractContextManager[object]:
        """Exclude other backups to this folder, where the place has locks. Raises BackupError."""


class DirectoryPlace(Place):
    """A directory of this machine."""

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self._path, self._disk = path.absolute(), disk or Disk()  # the current directory may change

    def location(self, name: str = "") -> str:
        return str(self._path / name)

    def sizes(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        try:
            for entry in os.scandir(self._path):
                with contextlib.suppress(FileNotFoundError):  # removed since it was listed
                    if entry.is_file():
                        sizes[entry.name] = entry.stat().st_size
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._failed("cannot be listed", "", error) from error
        return sizes

    def read(self, name: str) -> bytes:
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._failed("cannot be read", name, error) from error

    def write(self, name: str, content: bytes) -> None:
        disk, path = self._disk, self._path / name
        staging = path.with_name(name + STAGING_SUFFIX)
        try:
            disk.make_directories(self._path)
            staging.unlink(missing_ok=True)
            file = disk.create(staging)
            try:
                disk.write(file, content, 0)
                disk.sync(file)
            finally:
                disk.close(file)
            disk.rename(staging, path)
            disk.sync_directory(self._path)
        except BaseException as error:
            with contextlib.suppress(OSError):
                staging.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise self._failed("cannot be written", name, error) from error
            raise

    def remove(self, name: str) -> None:
        try:
            self._disk.unlink(self._path / name)
        except OSError as error:
            raise self._failed("cannot be removed", name, error) from error

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        try:
            held = directories.lock(self._path)
        except DatabaseInUse as error:
            raise BackupError(f"{self._path} is in use by another backup: {error.holder}; wait for its end") from error
        try:
            yield
        finally:
            held.release()

    def _failed(self, what: str, name: str, error: OSError) -> Unavailable:
        return Unavailable(f"{self.location(name)} {what}: {described(error)}")


class StorePlace(Place):
    """A folder of an object store, or of any other file system that fsspec knows."""

    def __init__(self, url: str) -> None:
        try:
            fsspec = importlib.import_module("fsspec")
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"{url} needs fsspec: pip install 'logdb[backup]', and the package of that store (s3fs, gcsfs, adlfs)",
                name="fsspec",
            ) from error
        self._url = url.rstrip("/")
        try:
            self._store, self._root = fsspec.core.url_to_fs(self._url)
        except (ImportError, ValueError) as error:
            raise BackupError(f"{url} cannot be opened: {error}") from error

    def location(self, name: str = "") -> str:
        return f"{self._url}/{name}" if name else self._url

    def sizes(self) -> dict[str, int]:
        sizes: dict[str, int] = self._try("be listed", "", self._sizes)
        return sizes

    def _sizes(self) -> dict[str, int]:
        self._store.invalidate_cache()
        try:
            entries = self._store.ls(self._root, detail=True)
        except FileNotFoundError:
            return {}
        return {entry["name"].rpartition("/")[2]: entry["size"] for entry in entries if entry["type"] == "file"}

    def read(self, name: str) -> bytes:
        content: bytes = self._try("be read", name, lambda: self._store.cat_file(f"{self._root}/{name}"))
        return content

    def write(self, name: str, content: bytes) -> None:
        def write() -> None:
            self._store.makedirs(self._root, exist_ok=True)
            self._store.pipe_file(f"{self._root}/{name}", content)

        self._try("be written", name, write)

    def remove(self, name: str) -> None:
        self._try("be removed", name, lambda: self._store.rm_file(f"{self._root}/{name}"))

    def lock(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext()

    def _try(self, what: str, name: str, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except FileNotFoundError:
            raise
        except Exception as error:  # each store has its own
            raise Unavailable(f"{self.location(name)} cannot {what}: {error}") from error


def place_of(location: str | os.PathLike[str], disk: Disk | None = None) -> Place:
    """The place at a path, or at a URL of fsspec. Raises TypeError, ValueError, BackupError,
    ModuleNotFoundError without fsspec."""
    if not isinstance(location, str | os.PathLike):
        raise TypeError(f"a backup is a path or a URL, not {type(location).__name__}")
    if location == "":
        raise ValueError("the path of a backup must not be empty; the current directory is '.'")
    if isinstance(location, str) and "://" in location and not location.startswith(_FILE_URL):
        return StorePlace(location)
    return DirectoryPlace(Path(os.fspath(location).removeprefix(_FILE_URL)), disk)
