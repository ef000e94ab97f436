"""Spans of time over which an engine's counters only went up."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise

from gateway.ledger.scrapes import Scrape

_COUNTS = ("prompt", "reused", "recomputed")


@dataclass(frozen=True, slots=True)
class Segment:
    """From one scrape to a later one of the same engine run."""

    begin: float  # seconds since the epoch
    end: float
    prompt: int | None  # tokens counted in between, as are the next two; None: not counted
    reused: int | None
    recomputed: int | None


def segments_of(scrapes: Iterable[Scrape]) -> dict[str, list[Segment]]:
    """By engine. What was counted between a scrape and a restart behind it is lost, and so is that span."""
    ordered = sorted(scrapes, key=lambda scrape: (scrape.engine, scrape.at))
    return {
        engine: list(_segments(list(its))) for engine, its in groupby(ordered, key=lambda each: each.engine)
    }


def _segments(scrapes: list[Scrape]) -> Iterator[Segment]:
    first = scrapes[0]
    for one, other in pairwise(scrapes):
        if _went_down(one, other):
            yield from _between(first, one)
            first = other
    yield from _between(first, scrapes[-1])


def _went_down(one: Scrape, other: Scrape) -> bool:
    return any(
        (before := getattr(one, name)) is not None
        and ((after := getattr(other, name)) is None or after < before)
        for name in _COUNTS
    )


def _between(first: Scrape, last: Scrape) -> Iterator[Segment]:
    if last.at > first.at:
        counts = [_difference(getattr(first, name), getattr(last, name)) for name in _COUNTS]
        yield Segment(first.at, last.at, *counts)


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before
