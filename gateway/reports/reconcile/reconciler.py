"""Adds up requests over the very spans that an engine's scrapes cover."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.ledger import Columns
from gateway.ledger.scrapes import Scrape
from gateway.reports.reconcile.reconciliation import Reconciliation
from gateway.reports.reconcile.segments import Segment, segments_of
from gateway.reports.rows.classes import FAILED
from gateway.reports.rows.facts import Facts


@dataclass(slots=True)
class _Sums:
    requests: int = 0
    prompt: int = 0
    reused: int = 0
    recomputed: int = 0
    silent_prompt: int = 0
    at_the_edge: int = 0


class Reconciler:
    """Made from the window's scrapes; takes the window's rows chunk by chunk."""

    def __init__(self, scrapes: Iterable[Scrape]) -> None:
        self._segments = {name: its for name, its in segments_of(scrapes).items() if its}
        self._sums = {name: _Sums() for name in self._segments}

    def add(self, chunk: Columns, facts: Facts) -> None:
        """Rows of one chunk."""
        for name, segments in self._segments.items():
            mine = _asked(chunk, name)
            if mine is None:
                continue
            mine &= ~np.isnan(facts.prompt) & (facts.kind != FAILED)
            inside = np.zeros(len(mine), np.bool_)
            edge = np.zeros(len(mine), np.bool_)
            for segment in segments:
                inside |= mine & (facts.end > segment.begin) & (facts.end <= segment.end)
                edge |= mine & _crosses(facts, segment)
            _add(self._sums[name], facts, inside, edge)

    def results(self) -> list[Reconciliation]:
        """One for each engine that has scrapes to compare with."""
        return [self._result(name, segments) for name, segments in sorted(self._segments.items())]

    def _result(self, name: str, segments: list[Segment]) -> Reconciliation:
        sums = self._sums[name]
        return Reconciliation(
            engine=name,
            seconds=sum(segment.end - segment.begin for segment in segments),
            restarts=len(segments) - 1,
            requests=sums.requests,
            counted_prompt=_total([segment.prompt for segment in segments]),
            counted_reused=_total([segment.reused for segment in segments]),
            counted_recomputed=_total([segment.recomputed for segment in segments]),
            prompt=sums.prompt,
            reused=sums.reused,
            recomputed=sums.recomputed,
            silent_prompt=sums.silent_prompt,
            at_the_edge=sums.at_the_edge,
        )


def _asked(chunk: Columns, name: str) -> NDArray[np.bool_] | None:
    """Which rows went to the replica of this id, or to the engine of this name that is one server; None: none did.

    Ids of replicas have a slash in them, which names of engines have not.
    """
    column = "replica" if "/" in name else "engine"
    if name not in chunk.labels[column]:
        return None
    rows: NDArray[np.bool_] = chunk.codes[column] == chunk.labels[column].index(name)
    return rows if column == "replica" else rows & (chunk.codes["replica"] < 0)


def _crosses(facts: Facts, segment: Segment) -> NDArray[np.bool_]:
    """Which requests were under way at a scrape."""
    crossing = np.zeros(len(facts.end), np.bool_)
    for moment in (segment.begin, segment.end):
        crossing |= (facts.arrival <= moment) & (facts.end >= moment)
    return crossing


def _add(sums: _Sums, facts: Facts, inside: NDArray[np.bool_], edge: NDArray[np.bool_]) -> None:
    silent = inside & np.isnan(facts.reused)
    told = inside & ~silent
    sums.requests += int(inside.sum())
    sums.prompt += int(facts.prompt[inside].sum())
    sums.reused += int(facts.reused[told].sum())
    sums.recomputed += int((facts.prompt - facts.reused)[told].sum())
    sums.silent_prompt += int(facts.prompt[silent].sum())
    sums.at_the_edge += int(facts.prompt[edge].sum())


def _total(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
