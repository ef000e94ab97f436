"""What a row says in a column that reports read."""

import math

import numpy as np

from gateway.ledger import LedgerRow
from gateway.ledger.encoding import TIERS


def number_of(each: LedgerRow, name: str) -> float:
    """NaN is `not known`."""
    moments = {"ttft": each.first_token, "duration": each.end}
    if name in moments:
        at = moments[name]
        return math.nan if at is None else float(np.float32(at - each.arrival))
    if name in TIERS:
        value = each.by_tier.get(name)  # type: ignore[call-overload]
    elif name == "divergence_offset":
        value = each.divergence and each.divergence.offset
    else:
        value = getattr(each, name)
    return math.nan if value is None else float(value)


def text_of(each: LedgerRow, name: str) -> str | None:
    if name == "divergence_cause":
        return each.divergence.cause if each.divergence else None
    value: str | None = getattr(each, name)
    return value
