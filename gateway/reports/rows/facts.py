"""One chunk of the ledger, with what follows from each row."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.ledger import Columns
from gateway.ledger.encoding import TIERS
from gateway.reports.rows.classes import CONSISTENT, classify, reusable

KEYS = ("tenant", "model", "engine", "replica", "route")
NAMES = (
    *KEYS, "reuse_status", "gap_cause", "divergence_cause", "arrival", "ttft", "duration", "status", "stream",
    "prompt", "reused", "matched", "completion", "block_size", "predicted", *TIERS,
)  # fmt: skip

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Facts:
    """Arrays of shape [rows]; NaN is `not known`. Reused and computed tokens only where they are consistent."""

    arrival: Floats  # seconds since the epoch
    end: Floats  # the same
    kind: NDArray[np.int8]  # a place in CLASSES
    ttft: Floats  # seconds, of streams alone: of a whole answer the first byte is as late as the last
    tpot: Floats  # seconds a token after the first, of streams alone
    stream: Floats  # 0 or 1
    prompt: Floats
    completion: Floats
    reused: Floats  # as reported, consistent or not
    consistent: NDArray[np.bool_]
    could: Floats  # tokens that could be reused
    matched: Floats
    predicted: Floats
    block: Floats
    tiers: dict[str, Floats]


def facts_of(chunk: Columns) -> Facts:
    """What the rows of one chunk say."""
    given = chunk.numbers
    could = reusable(given["prompt"], given["block_size"])
    kind = classify(given["prompt"], given["reused"], could, chunk.codes["reuse_status"], given["status"])
    streams = given["stream"] == 1
    ttft = np.where(streams, given["ttft"], np.nan)
    after = given["completion"] - 1
    with np.errstate(invalid="ignore", divide="ignore"):
        tpot = np.where(after >= 1, (given["duration"] - ttft) / after, np.nan)
    return Facts(
        arrival=given["arrival"],
        end=given["arrival"] + np.nan_to_num(given["duration"]),
        kind=kind,
        ttft=ttft,
        tpot=tpot,
        stream=given["stream"],
        prompt=given["prompt"],
        completion=given["completion"],
        reused=given["reused"],
        consistent=np.isin(kind, CONSISTENT),
        could=could,
        matched=given["matched"],
        predicted=given["predicted"],
        block=given["block_size"],
        tiers={tier: given[tier] for tier in TIERS},
    )
