"""Ratios on a noisy machine: alternate what is compared, and take medians."""

import statistics
import time
from collections.abc import Callable, Mapping

Measure = Callable[[], float]  # does the thing once and returns its figure (seconds, or a rate)


def alternate(cases: Mapping[str, Measure], rounds: int, progress: Callable[[str], None]) -> dict[str, float]:
    """The median figure of each case over `rounds` rounds; within a round each case runs once, in turn."""
    figures: dict[str, list[float]] = {name: [] for name in cases}
    for round_number in range(1, rounds + 1):
        for name, measure in cases.items():
            progress(f"{name}: {round_number} of {rounds}")
            figures[name].append(measure())
    return {name: statistics.median(values) for name, values in figures.items()}


def seconds(action: Callable[[], object]) -> float:
    """Wall-clock seconds of one call."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def cpu_seconds(action: Callable[[], object]) -> float:
    """CPU seconds of one call, all threads of this process: what a call costs, whoever else uses the machine."""
    started = time.process_time()
    action()
    return time.process_time() - started


def median_of(measure: Measure, rounds: int, progress: Callable[[str], None], name: str) -> float:
    """The median figure of one case."""
    return alternate({name: measure}, rounds, progress)[name]
