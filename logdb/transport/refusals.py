"""Refused messages, streams and connections of a server: all are counted, and logged at a limited rate."""

from __future__ import annotations

import logging
import time
from typing import Final

BURST: Final = 20
"""Maximum number of lines logged at once."""
EVERY_S: Final = 1.0
"""Then one line is logged in this interval, with the number of lines left out."""


class Refusals:
    """The refusals of one server. `count`: their number since it started."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self.count = self._silent = 0
        self._left: float = BURST
        self._at = time.monotonic()

    def add(self, event: str, peer: str, reason: object) -> None:
        """Count a refusal, and log it unless the rate is exceeded."""
        self.count += 1
        now = time.monotonic()
        self._left, self._at = min(BURST, self._left + (now - self._at) / EVERY_S), now
        if self._left < 1:
            self._silent += 1
            return
        self._left -= 1
        more = {"left_out": self._silent} if self._silent else {}
        self._silent = 0
        self._logger.warning(event, extra={"peer": peer, "why": str(reason), **more})
