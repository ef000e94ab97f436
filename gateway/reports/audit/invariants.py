"""What must hold of every engine's figures, whatever the traffic; what does not is a finding."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.reports.audit.groups import Key
from gateway.reports.audit.sums import Sums
from gateway.reports.findings import ReportFinding
from gateway.reports.rows.classes import CONSISTENT, INCONSISTENT, NOT_REPORTED
from gateway.reports.rows.facts import KEYS

_ENOUGH = 20  # requests before a pattern is one

_NAMES = (
    "all but one", "zero", "zero, predicted", "streams, zero, predicted", "predicted", "streams, predicted",
    "off tiers", "off block", "over matched",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Engine:
    """Requests of one engine and one model."""

    name: str | None
    model: str | None
    consistent: int
    inconsistent: int
    silent: int  # not reported
    streams: int  # that reported consistently
    silent_streams: int
    counts: dict[str, int]  # of `_NAMES`


def broken_invariants(keys: list[Key], sums: Sums) -> Iterator[ReportFinding]:
    """Findings, engine by engine and model by model."""
    for engine in _engines(keys, sums):
        yield from _impossible(engine)
        yield from _suspicious(engine)
        yield from _zeros_of_one_kind(engine)
        yield from _silent(engine)


def _engines(keys: list[Key], sums: Sums) -> Iterator[_Engine]:
    columns = KEYS.index("engine"), KEYS.index("model")
    named = [(key[columns[0]], key[columns[1]]) for key in keys]
    for name, model in sorted(set(named), key=lambda each: (each[0] or "", each[1] or "")):
        its = np.array([place for place, each in enumerate(named) if each == (name, model)])
        good = list(CONSISTENT)

        def total(what: str, kinds: list[int], its: NDArray[np.int64] = its) -> int:
            return int(sums[what][its][:, kinds].sum())

        yield _Engine(
            name,
            model,
            consistent=total("requests", good),
            inconsistent=total("requests", [INCONSISTENT]),
            silent=total("requests", [NOT_REPORTED]),
            streams=total("streams", good),
            silent_streams=total("streams", [NOT_REPORTED]),
            counts={what: total(what, good) for what in _NAMES},
        )


def _impossible(engine: _Engine) -> Iterator[ReportFinding]:
    if engine.inconsistent:
        detail = f"{_requests(engine.inconsistent)} reported more reused tokens than the prompt has."
        yield _wrong("cached-over-prompt", engine, detail, "the engine's accounting is broken")
    if count := engine.counts["off tiers"]:
        detail = f"In {_requests(count)} the tiers do not add up to what was reused."
        yield _wrong(
            "tiers-do-not-add-up", engine, detail, "the engine counts one tier twice, or leaves one out"
        )
    if count := engine.counts["over matched"]:
        detail = f"{_requests(count)} reused more than the engine's own index had matched."
        yield _wrong("reused-over-matched", engine, detail, "the engine's accounting is broken")
    if count := engine.counts["off block"]:
        detail = f"{_requests(count)} reused a number of tokens that is no multiple of the block."
        cause = "the block size is another than was detected, or the figure is made up"
        yield _wrong("no-block-multiple", engine, detail, cause, "Ask `kvgate doctor` for the block size.")


def _suspicious(engine: _Engine) -> Iterator[ReportFinding]:
    if engine.consistent < _ENOUGH:
        return
    if engine.counts["all but one"] == engine.consistent:
        detail = f"All of {_requests(engine.consistent)} reused the prompt but for its last token."
        cause = "prefill is done by another engine; or every prompt was sent before, whole"
        fix = "Ask `kvgate doctor`, which sends a prompt that is new."
        yield ReportFinding("prompt-minus-one", "doubtful", engine.name, _of(engine, detail), cause, fix)
    expected = engine.counts["zero, predicted"]
    if engine.counts["zero"] == engine.consistent and expected >= _ENOUGH:
        detail = f"All of {_requests(engine.consistent)} reported 0, and of {expected:,} reuse was expected."
        cause = "prefix caching is off, or the engine writes 0 where it does not know"
        yield ReportFinding(
            "always-zero", "doubtful", engine.name, _of(engine, detail), cause, "Ask `kvgate doctor`."
        )


def _zeros_of_one_kind(engine: _Engine) -> Iterator[ReportFinding]:
    """Of requests that should have hit, all streams report 0 and whole answers do not; or the other way round."""
    counts = engine.counts
    expected, zero = counts["streams, predicted"], counts["streams, zero, predicted"]
    streams = (expected - zero, zero)
    whole = (
        counts["predicted"] - expected - (counts["zero, predicted"] - zero),
        counts["zero, predicted"] - zero,
    )
    if not (_parted(streams, whole) or _parted(whole, streams)):
        return
    hit, missed = ("Whole answers", "streams") if whole[0] else ("Streams", "whole answers")
    detail = f"{hit} report what was expected to be reused and {missed} report 0 ({_requests(sum(streams + whole))})."
    cause = "the engine writes 0 into one of the two, where it does not know"
    yield ReportFinding("stream-and-whole-differ", "doubtful", engine.name, _of(engine, detail), cause)


def _silent(engine: _Engine) -> Iterator[ReportFinding]:
    if not engine.silent:
        return
    whole, silent_whole = engine.consistent - engine.streams, engine.silent - engine.silent_streams
    streams = (engine.streams, engine.silent_streams)
    if _parted(streams, (whole, silent_whole)) or _parted((whole, silent_whole), streams):
        said, unsaid = ("whole answers", "streams") if whole else ("streams", "whole answers")
        detail = f"{said.capitalize()} report reuse and {unsaid} do not ({_requests(engine.silent)})."
        cause = "the engine leaves usage out of one of the two"
        yield ReportFinding("stream-and-whole-differ", "doubtful", engine.name, _of(engine, detail), cause)
        return
    detail = f"{_requests(engine.silent)} did not report what they reused ({engine.consistent:,} did)."
    cause = (
        "a flag of the engine is missing" if not engine.consistent else "answers were cut before their usage"
    )
    yield ReportFinding(
        "not-reported",
        "doubtful",
        engine.name,
        _of(engine, detail),
        cause,
        "Ask `kvgate doctor` for the flag.",
    )


def _parted(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """All of one kind say something, and none of the other: how many do and do not, of each."""
    return one[0] >= _ENOUGH and one[1] == 0 and other[0] == 0 and other[1] >= _ENOUGH


def _wrong(rule: str, engine: _Engine, detail: str, cause: str, fix: str = "") -> ReportFinding:
    return ReportFinding(rule, "wrong", engine.name, _of(engine, detail), cause, fix)


def _of(engine: _Engine, detail: str) -> str:
    return detail if engine.model is None else f"{engine.model}: {detail}"


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count:,} requests"
