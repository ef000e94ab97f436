"""Ids of traces and spans, of which the next trace's can be said before its span is made."""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

_RANDOM = 0x02  # a flag of W3C Trace Context, Level 2


class TraceIds(RandomIdGenerator):
    """Random ones. Used on one event loop.

    Attributes:
        flags: of a trace that begins here and is not sampled.
    """

    def __init__(self) -> None:
        self._given: int | None = None
        # Older SDKs know no such flag, and set none.
        self.flags = _RANDOM if getattr(self, "is_trace_id_random", lambda: False)() else 0

    def generate_trace_id(self) -> int:
        """The given one, else a new one."""
        return super().generate_trace_id() if self._given is None else self._given

    @contextmanager
    def given(self, trace_id: int) -> Iterator[None]:
        """A span without a parent that is made inside begins this trace."""
        self._given = trace_id
        try:
            yield
        finally:
            self._given = None
