"""What the tiers are told about the steps of the engine."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

from cache_core.prefill_estimator import Chunk as Prefilled
from cache_core.tiered import OwnLoad, TieredCache
from engine_adapters.embedded.scheduler import Chunk
from engine_adapters.embedded.sequence import Sequence as Running
from engine_adapters.embedded.tiering import Tiering


class Told:
    """In place of the tiers."""

    def __init__(self) -> None:
        self.steps: list[tuple[list[Prefilled], float]] = []

    def computed(self, chunks: Sequence[Prefilled], seconds: float) -> None:
        self.steps.append((list(chunks), seconds))


def chunk(computed: int, tokens: int, behind: OwnLoad | None = None) -> Chunk:
    return Chunk(cast(Running, SimpleNamespace(computed=computed)), tokens, False, behind)


def steps_told(*steps: list[Chunk]) -> list[tuple[list[Prefilled], float]]:
    told = Told()
    for step in steps:
        Tiering(cast(TieredCache, told)).computed(step, 0.5)
    return told.steps


def test_every_prefill_tells_what_it_cost_whatever_else_runs() -> None:
    mixed = [chunk(99, 1), chunk(512, 256), chunk(0, 100), chunk(7, 1)]
    assert steps_told([chunk(0, 512)], mixed) == [([(0, 512)], 0.5), ([(512, 256), (0, 100)], 0.5)]


def test_steps_without_prefill_or_that_waited_for_bytes_tell_nothing() -> None:
    coming = cast(OwnLoad, SimpleNamespace(end=640))
    assert steps_told([chunk(9, 1), chunk(8, 1)], [chunk(0, 512), chunk(0, 64, coming)]) == []
