"""What canonical bodies would gain, counted on live traffic."""

import threading
from typing import Any

from canon.lint.linter import utf8
from canon.lint.prefix_model import PrefixModel
from canon.lint.segments import Segment, segments_of

_BLOCKS = 100_000  # block hashes in each of two generations: some tens of MB


class GainCounter:
    """Replays requests through a prefix model as they came and as they would have been sent. Safe from any thread.

    The model is one of kvgate's own: unbounded but for what it remembers, tokens estimated as UTF-8 bytes / 4.
    """

    def __init__(self) -> None:
        self._as_came = PrefixModel(utf8, max_blocks=_BLOCKS)
        self._as_rewritten = PrefixModel(utf8, max_blocks=_BLOCKS)
        self._lock = threading.Lock()

    def count(self, scope: str, came: Any, rewritten: Any) -> int:
        """Prompt tokens more (or less) that the rewritten body shares with rewritten ones before it."""
        start = Segment((), "scope", "other", scope)
        with self._lock:
            before = self._as_came.replay([start, *segments_of(came)]).reused
            after = self._as_rewritten.replay([start, *segments_of(rewritten)]).reused
        return after - before
