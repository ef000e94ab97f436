"""Block traces: which prefix blocks each request of a service asked for."""

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

TRACE_BLOCK = 512  # tokens behind one id of a trace

Ids = NDArray[np.int32]


class TraceError(Exception):
    """The trace cannot be read; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The requests of one trace in order of arrival: int32 [n] each, equal ids are equal prefixes."""

    name: str
    requests: list[Ids]

    @property
    def blocks(self) -> int:
        """Blocks of all requests together."""
        return sum(map(len, self.requests))

    def reblocked(self, block_size: int) -> "Trace":
        """The same traffic in blocks of `block_size` tokens; a rest that fills no larger block is left out.

        Raises:
            TraceError: neither of the sizes is a multiple of the other.
        """
        if block_size == TRACE_BLOCK:
            return self
        if block_size < TRACE_BLOCK and TRACE_BLOCK % block_size == 0:
            parts = np.arange(TRACE_BLOCK // block_size, dtype=np.int32)
            split = [(ids[:, None] * len(parts) + parts).reshape(-1) for ids in self.requests]
            return Trace(self.name, split)
        if block_size > TRACE_BLOCK and block_size % TRACE_BLOCK == 0:
            joined = block_size // TRACE_BLOCK
            # the last id of a group stands for it: equal ids have equal prefixes
            return Trace(self.name, [ids[joined - 1 :: joined] for ids in self.requests])
        raise TraceError(f"a block of {block_size} tokens cannot be made from blocks of {TRACE_BLOCK}")


def read_trace(path: Path) -> Trace:
    """Read a JSON Lines file, gzipped or not, whose objects have `hash_ids` and may have `timestamp`.

    Raises:
        TraceError: the file cannot be read or is no such trace.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            lines = [_parsed(path, number, line) for number, line in enumerate(file, 1) if line.strip()]
    except (OSError, EOFError) as error:
        raise TraceError(f"{path} cannot be read: {error}") from error
    if not any(len(ids) for _, ids in lines):
        raise TraceError(f"{path} has no requests with blocks")
    lines.sort(key=lambda line: line[0])
    numbers: dict[int, int] = {}
    return Trace(
        path.name,
        [np.array([numbers.setdefault(i, len(numbers)) for i in ids], dtype=np.int32) for _, ids in lines],
    )


def _parsed(path: Path, number: int, line: bytes) -> tuple[float, list[int]]:
    try:
        entry = orjson.loads(line)
        return float(entry.get("timestamp", 0)), [int(i) for i in entry["hash_ids"]]
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise TraceError(f"{path}, line {number}: no request with hash_ids ({error})") from error
