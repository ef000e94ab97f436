"""A decision in words that fit a column of the ledger, and a header."""

from collections.abc import Sequence

import orjson

from gateway.routing.router import Decision, Score

_IN_LEDGER = 128  # candidates; the best and the chosen one are always told
_IN_HEADER = 16


def scores_json(decision: Decision | None, most: int = _IN_LEDGER) -> str | None:
    """`{"engine/a":[reused, queued, seconds],...}`: expected of each candidate, the soonest first; None: no scores.

    Reused and queued are prompt tokens, seconds those to the first one; null is not known.
    """
    if decision is None or not decision.scores:
        return None
    told: Sequence[Score] = decision.scores
    if len(told) > 1:
        told = sorted(told, key=lambda score: _rank(score, decision.replica))[:most]
    return orjson.dumps({each.replica: _figures(each) for each in told}).decode()


def header(decision: Decision) -> bytes:
    """`engine/a; reason=prefix; scores={...}`."""
    scores = scores_json(decision, _IN_HEADER)
    told = f"{decision.replica}; reason={decision.reason}"
    return (told if scores is None else f"{told}; scores={scores}").encode("ascii", "replace")


def _figures(score: Score) -> list[float | int | None]:
    return [score.predicted, score.queued, None if score.ttft_s is None else round(score.ttft_s, 4)]


def _rank(score: Score, chosen: str) -> tuple[bool, float]:
    return score.replica != chosen, score.ttft_s or 0.0
