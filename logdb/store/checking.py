"""Whether the file of an LMDB environment is as it was written, found out without LMDB.

LMDB has no checksums and trusts its file: a damaged page ends the process that reads it, or hides rows. So
`find_damage` reads the file before LMDB maps it, in three steps, each only where the one before does not answer:

1. The file is the one that was found sound last (same inode, size and time of change) and the machine has not been
   started since: nothing is read.
2. The CRC32C of the file is the one that was noted when it was written last (`note`).
3. `walk`: every page of every table is decoded and checked: rows by their seals (`sealed.py`), order of keys, bounds of
   branches, counts, and that each page is used once or free. This is slow, and follows a kill during a checkpoint.

The note (`SUM`) is a cache: where it is missing, stale or damaged itself, the next step decides.
"""

from __future__ import annotations

import contextlib
import operator
import os
from array import array
from collections.abc import Collection
from itertools import islice
from pathlib import Path
from struct import Struct, error
from typing import Final, NamedTuple

from google_crc32c import extend

RESIDUE: Final = 0x48674BC7
"""The CRC32C of anything followed by its own. A seal begins with it, so that sealed rows one after another have it."""
DATA: Final = "data.mdb"
NOTE: Final = "SUM"
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
PIECE_BYTES: Final = 128 << 10

HEADER: Final = Struct("<QHHHH")  # number, padding, kind, end of the offsets, begin of the nodes
OVERFLOW: Final = Struct("<QHHI")  # number, padding, kind, pages
NODE: Final = Struct("<HHHH")  # size (low, high) and flags of a row, or number of a child; size of the key
META: Final = Struct("<IIQQ48s48sQQ")  # magic, version, address, size, free list, tables, last page, transaction
TREE: Final = Struct("<IHHQQQQQ")  # padding, flags, depth, pages (branch, leaf, overflow), rows, root
NUMBER: Final = Struct("<Q")
MAGIC: Final = 0xBEEFC0DE
DATA_VERSION: Final = 1
METAS: Final = 2
MOST_UNWRITTEN_PAGES: Final = 1 << 20
"""Free pages at the end of the file that a transaction never wrote."""
LEAST_PAGE_BYTES, MOST_PAGE_BYTES = 512, 65_536
BRANCH, LEAF, IS_OVERFLOW, META_PAGE = 1, 2, 4, 8
ELSEWHERE, SUBTREE = 1, 2
INTEGER_KEY: Final = 8
EMPTY: Final = (1 << 64) - 1
MOST_DEPTH: Final = 32
TABLE_LIST: Final = "the list of tables"
FREE_LIST: Final = "the list of free pages"


class Broken(Exception):
    """What is wrong with the file."""


class Tree(NamedTuple):
    """What LMDB notes of a table."""

    padding: int
    flags: int
    depth: int
    branches: int
    leaves: int
    overflows: int
    rows: int
    root: int


def find_damage(path: Path, tables: Collection[bytes], *, all_of_it: bool) -> str | None:
    """Why the environment in `path`, which has these `tables`, cannot be trusted; None if it can, or is not there.

    `all_of_it`: begin with the last step. Must not run beside a writer of the environment. Raises OSError.
    """
    file = path / DATA
    try:
        found = os.stat(file)
    except FileNotFoundError:
        return None
    if not found.st_size:  # LMDB makes a new environment of it
        return None
    status = _identity(found)
    noted = None if all_of_it else _noted(path)
    if noted is not None and noted[1] == status:
        return None
    if noted is None or noted[0] != crc_of(file):
        try:
            walk(file, tables)
        except Broken as why:
            return str(why)
    note(path)
    return None


def note(path: Path) -> None:
    """Note the CRC32C of the file, which is sound. Nothing is noted where it changes meanwhile."""
    file = path / DATA
    with contextlib.suppress(OSError):  # a cache
        before = _identity(os.stat(file))
        text = f"{crc_of(file):08x} {before}"
        if before == _identity(os.stat(file)):
            staging = path / f"{NOTE}.{os.getpid()}"
            staging.write_text(text)
            os.replace(staging, path / NOTE)


def forget(path: Path) -> None:
    """Distrust the file: the next `find_damage` walks it."""
    with contextlib.suppress(OSError):
        (path / NOTE).unlink()


def crc_of(file: Path) -> int:
    """The CRC32C of all of a file."""
    crc, at = 0, 0
    fd = os.open(file, os.O_RDONLY)
    try:
        while piece := os.pread(fd, PIECE_BYTES, at):
            crc = extend(crc, piece)
            at += len(piece)
    finally:
        os.close(fd)
    return crc


def _noted(path: Path) -> tuple[int, str] | None:
    try:
        crc, status = (path / NOTE).read_text().split(" ", 1)
        return int(crc, 16), status
    except (OSError, ValueError):
        return None


def _identity(status: os.stat_result) -> str:
    boot = BOOT_ID.read_text().strip() if BOOT_ID.exists() else os.urandom(8).hex()
    return f"{status.st_dev} {status.st_ino} {status.st_size} {status.st_ctime_ns} {boot}"


def walk(file: Path, tables: Collection[bytes]) -> None:
    """Decode and check every page of a file that has these tables. Raises Broken, OSError."""
    fd = os.open(file, os.O_RDONLY)
    try:
        _Walk(fd).check(tables)
    except (error, ValueError, IndexError, OverflowError, MemoryError) as why:
        raise Broken(f"a page of {file.name} makes no sense ({why})") from why
    finally:
        os.close(fd)


class _Walk:
    def __init__(self, fd: int) -> None:
        self._fd = fd
        metas = [self._meta(0, os.pread(fd, MOST_PAGE_BYTES, 0))]
        self._page_bytes = metas[0][0].padding
        if not LEAST_PAGE_BYTES <= self._page_bytes <= MOST_PAGE_BYTES or self._page_bytes & (self._page_bytes - 1):
            raise Broken(f"it says that its pages have {self._page_bytes:,} bytes")
        metas.append(self._meta(1, self._read(1, 1)))
        if metas[1][0].padding != self._page_bytes:
            raise Broken("its two meta pages contradict each other")
        self._free, self._main, last, _ = max(metas, key=operator.itemgetter(3))
        size = os.fstat(fd).st_size
        if last + 1 > size // self._page_bytes + MOST_UNWRITTEN_PAGES:
            raise Broken(f"it has {size:,} bytes, and should have {last + 1:,} pages")
        self._pages = last + 1
        self._used = bytearray(self._pages)
        self._used[:METAS] = b"\1" * METAS

    def check(self, tables: Collection[bytes]) -> None:
        found: dict[bytes, Tree] = {}
        self._tree(TABLE_LIST, self._main, found=found)
        if not found.keys() & set(tables):
            raise Broken("it was written by another version of LogDB")
        if found.keys() != set(tables):
            raise Broken("its list of tables is not what was written")
        for name, tree in found.items():
            self._tree(f"table {name.decode()}", tree)
        free: list[int] = []
        self._tree(FREE_LIST, self._free, free=free)
        for number in free:
            self._use(number, 1)
        if (unused := self._used.count(0)) != 0:
            raise Broken(f"{unused:,} of its pages are neither used nor free")

    def _meta(self, number: int, page: bytes) -> tuple[Tree, Tree, int, int]:
        header = HEADER.unpack_from(page)
        magic, version, address, _, free, main, last, transaction = META.unpack_from(page, HEADER.size)
        trees = Tree(*TREE.unpack(free)), Tree(*TREE.unpack(main))
        flags = trees[0].flags, trees[1].flags
        if (header[0], header[2]) != (number, META_PAGE) or (magic, version, address) != (MAGIC, DATA_VERSION, 0):
            raise Broken(f"meta page {number} is not what was written")
        if flags != (INTEGER_KEY, 0) or last < METAS - 1:
            raise Broken(f"meta page {number} is not what was written")
        return *trees, last, transaction

    def _read(self, number: int, count: int) -> bytes:
        size = self._page_bytes
        data = os.pread(self._fd, count * size, number * size)
        if len(data) != count * size:
            raise Broken(f"it is cut off: page {number} is missing")
        return data

    def _use(self, number: int, count: int) -> None:
        if number < METAS or number + count > self._pages or any(self._used[number : number + count]):
            raise Broken(f"page {number} is used twice, or cannot be")
        self._used[number : number + count] = b"\1" * count

    def _tree(
        self, title: str, tree: Tree, *, found: dict[bytes, Tree] | None = None, free: list[int] | None = None
    ) -> None:
        if tree.root == EMPTY:
            if any((tree.depth, tree.branches, tree.leaves, tree.overflows, tree.rows)):
                raise Broken(f"{title} is missing")
            return
        if tree.depth > MOST_DEPTH or (found is None and free is None and tree.flags):
            raise Broken(f"{title} is not what was written")
        branches = leaves = overflows = rows = 0
        # (page, its depth, its least key, a key before which all of its own lie): depth first, from the left.
        waiting: list[tuple[int, int, bytes, bytes | None]] = [(tree.root, 1, b"", None)]
        while waiting:
            number, depth, least, before = waiting.pop()
            self._use(number, 1)
            page = self._read(number, 1)
            if depth < tree.depth:
                branches += 1
                waiting.extend(reversed(self._children(title, number, page, depth + 1, least, before)))
                continue
            leaves += 1
            keys, values, pages = self._leaf(title, number, page)
            _check_order(title, number, keys, least, before)
            if found is not None:
                found.update((key, Tree(*TREE.unpack(value))) for key, value in zip(keys, values, strict=True))
            elif free is not None:
                free.extend(page for value in values for page in _listed(value))
            else:
                _check_seals(title, number, keys, values)
            rows += len(keys)
            overflows += pages
        if (branches, leaves, overflows, rows) != tree[3:7]:
            raise Broken(f"{title} has {rows:,} rows, and should have {tree.rows:,}")

    def _nodes(self, title: str, number: int, page: bytes, kind: int) -> tuple[tuple[int, ...], int]:
        """(where the nodes of a page begin, how many bytes they have)."""
        own, _, flags, lower, upper = HEADER.unpack_from(page)
        if own != number or flags != kind or not HEADER.size < lower <= upper <= len(page) or lower % 2:
            raise Broken(f"{title} is not what was written, in page {number}")
        at = Struct(f"<{(lower - HEADER.size) // 2}H").unpack_from(page, HEADER.size)
        if min(at) < upper:
            raise Broken(f"{title} is not what was written, in page {number}")
        return at, len(page) - upper

    def _children(
        self, title: str, number: int, page: bytes, depth: int, least: bytes, before: bytes | None
    ) -> list[tuple[int, int, bytes, bytes | None]]:
        nodes, room = self._nodes(title, number, page, BRANCH)
        keys, numbers = [], []
        for at in nodes:
            low, middle, high, size = NODE.unpack_from(page, at)
            begin = at + NODE.size
            keys.append(page[begin : begin + size])
            numbers.append(low | middle << 16 | high << 32)
            room -= NODE.size + size + size % 2
        if room or len(keys) < 2:
            raise Broken(f"{title} is not what was written, in page {number}")
        keys = _comparable(title, keys)
        keys[0] = least  # LMDB leaves it empty
        _check_order(title, number, keys, least, before)
        ends: list[bytes | None] = [*keys[1:], before]
        return [(child, depth, key, end) for child, key, end in zip(numbers, keys, ends, strict=True)]

    def _leaf(self, title: str, number: int, page: bytes) -> tuple[list[bytes], list[bytes], int]:
        """(keys, values, overflow pages) of a leaf."""
        nodes, room = self._nodes(title, number, page, LEAF)
        keys, values, pages = [], [], 0
        unpack = NODE.unpack_from
        for at in nodes:
            low, high, flags, size = unpack(page, at)
            begin = at + 8 + size
            keys.append(page[at + 8 : begin])
            length = low | high << 16
            if flags & ELSEWHERE:
                count = (HEADER.size - 1 + length) // self._page_bytes + 1
                (first,) = NUMBER.unpack_from(page, begin)
                self._use(first, count)
                data = self._read(first, count)
                own, _, kind, noted = OVERFLOW.unpack_from(data)
                if (own, kind, noted) != (first, IS_OVERFLOW, count):
                    raise Broken(f"{title} is not what was written, in page {first}")
                values.append(data[HEADER.size : HEADER.size + length])
                pages += count
                length = NUMBER.size
            else:
                values.append(page[begin : begin + length])
            if flags & ~(ELSEWHERE | SUBTREE) or (flags & SUBTREE and title != TABLE_LIST):
                raise Broken(f"{title} is not what was written, in page {number}")
            room -= 8 + size + length + (size + length) % 2
        if room:
            raise Broken(f"{title} is not what was written, in page {number}")
        return _comparable(title, keys), values, pages


def _comparable(title: str, keys: list[bytes]) -> list[bytes]:
    """Keys in the form in which bytes are ordered as LMDB orders them: those of the free list are integers."""
    return [key[::-1] for key in keys] if title == FREE_LIST else keys


def _listed(value: bytes) -> list[int]:
    """The pages in a row of the free list, which begins with their number and has the last one first."""
    count, *pages = array("Q", value)
    if count != len(pages) or not all(map(operator.gt, pages, islice(pages, 1, None))):
        raise Broken(f"{FREE_LIST} is not what was written")
    return pages


def _check_order(title: str, number: int, keys: list[bytes], least: bytes, before: bytes | None) -> None:
    in_order = all(map(operator.lt, keys, islice(keys, 1, None)))
    if not in_order or keys[0] < least or (before is not None and keys[-1] >= before):
        raise Broken(f"the keys of {title} are not in order, in page {number}")


def _check_seals(title: str, number: int, keys: list[bytes], values: list[bytes]) -> None:
    parts = [part for row in zip(keys, values, strict=True) for part in row]
    if extend(RESIDUE, b"".join(parts)) != RESIDUE or min(map(len, values)) < 4:
        raise Broken(f"a row of {title} is not what was written, in page {number}")
