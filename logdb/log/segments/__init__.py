"""Log segments on disk: the record format, store and index files, rotation, recovery, truncation.

`FORMAT.md` in this folder specifies the bytes. Engines use `SegmentStore`.
"""

from logdb.log.segments.store import SegmentStore
from logdb.system.disk import Disk

__all__ = ["Disk", "SegmentStore"]
