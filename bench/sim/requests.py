"""The requests of a trace with their times, for simulations in which something waits."""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

from bench.sim.trace import TraceError


@dataclass(frozen=True, slots=True)
class TimedRequest:
    """One request of a trace."""

    at: float  # seconds since the trace's start
    ids: tuple[int, ...]  # prefix blocks: equal ids are equal blocks behind equal prefixes
    output: int  # tokens of the answer
    session: str | None


def read_requests(path: Path) -> list[TimedRequest]:
    """JSON Lines, gzipped or not: `timestamp` (ms), `hash_ids`, and where known `output_length` and `session`.

    Raises:
        TraceError: the file cannot be read or is no such trace.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            found = [_parsed(path, number, line) for number, line in enumerate(file, 1) if line.strip()]
    except (OSError, EOFError) as error:
        raise TraceError(f"{path} cannot be read: {error}") from error
    found = [request for request in found if request.ids]
    if not found:
        raise TraceError(f"{path} has no requests with blocks")
    return list(_renumbered(sorted(found, key=lambda request: request.at)))


def _parsed(path: Path, number: int, line: bytes) -> TimedRequest:
    try:
        entry = orjson.loads(line)
        session = entry.get("session")
        return TimedRequest(
            float(entry["timestamp"]) / 1000,
            tuple(int(i) for i in entry["hash_ids"]),
            int(entry.get("output_length", 0)),
            None if session is None else str(session),
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise TraceError(
            f"{path}, line {number}: no request with timestamp and hash_ids ({error})"
        ) from error


def _renumbered(requests: list[TimedRequest]) -> Iterator[TimedRequest]:
    """Ids become small numbers, which fit a token."""
    numbers: dict[int, int] = {}
    for request in requests:
        ids = tuple([numbers.setdefault(i, len(numbers)) for i in request.ids])
        yield TimedRequest(request.at, ids, request.output, request.session)
