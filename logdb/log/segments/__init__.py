"""Log segments on disk: the record format, store and index files, rotation, recovery, truncation.

`FORMAT.md` beside this file is the byte grammar. `SegmentStore` is what the engines use.
"""

from logdb.log.segments.store import SegmentStore
from logdb.system.disk import Disk

__all__ = ["Disk", "SegmentStore"]
