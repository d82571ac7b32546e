"""What a server refuses: all of it is counted, and logged as often as people can read."""

from __future__ import annotations

import logging
import time
from typing import Final

BURST: Final = 20
"""So many lines may come at once."""
EVERY_S: Final = 1.0
"""Afterwards one in this time, which says how many were left out."""


class Refusals:
    """Of one server. `count`: so many messages, streams and connections were refused since it started."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self.count = self._silent = 0
        self._left: float = BURST
        self._at = time.monotonic()

    def add(self, what: str, peer: str, why: object) -> None:
        """Something was refused that `peer` has sent."""
        self.count += 1
        now = time.monotonic()
        self._left, self._at = min(BURST, self._left + (now - self._at) / EVERY_S), now
        if self._left < 1:
            self._silent += 1
            return
        self._left -= 1
        more = {"left_out": self._silent} if self._silent else {}
        self._silent = 0
        self._logger.warning(what, extra={"peer": peer, "why": str(why), **more})
