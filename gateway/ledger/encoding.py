"""Rows as a database takes them, and back."""

import math
from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter, index
from typing import Any, TypeAlias, get_args

from engine_adapters.base import ReuseStatus, Tier
from gateway.ledger.row import Divergence, LedgerRow

Encoded: TypeAlias = tuple[Any, ...]  # one value a column, in the order of `COLUMNS`

TIERS: tuple[Tier, ...] = get_args(Tier)
STATUSES: tuple[ReuseStatus, ...] = get_args(ReuseStatus)

_LONGEST = 200  # characters of a text
_LONGEST_EXPLAINED = 32_768
_MOST = 2**31 - 1  # of a count; what is said beyond it is no count

_TEXTS = (
    "id", "tenant", "model", "route", "engine", "replica", "reuse_source", "gap_cause", "canon_policy",
    "finish", "error", "trace_id",
)  # fmt: skip
_TIMES = ("first_token", "end")
COUNTS: tuple[str, ...] = (
    "prompt", "reused", "matched", "completion", "reasoning", "predicted", "block_size", "canon_rules",
    "canon_edits", "canon_saved", "retries", "attempts",
)  # fmt: skip
_EXPLAINED = (
    "route_reason",
    "route_scores",
)  # texts that no report groups by, nor do they fit 200 characters
_DIVERGENCE = ("divergence_path", "divergence_offset", "divergence_cause", "divergence_hash")

COLUMNS: tuple[str, ...] = (
    *_TEXTS, "reuse_status", "arrival", *_TIMES, "stream", "status", *COUNTS, *_EXPLAINED, *TIERS,
    *_DIVERGENCE,
)  # fmt: skip

_names_of = attrgetter(*_TEXTS[1:-1])
_times_of = attrgetter(*_TIMES)
_counts_of = attrgetter(*COUNTS)


def encoded(row: LedgerRow) -> Encoded:
    """One row. Texts are cut at 200 characters, and numbers that can be no count or time become None."""
    # Most of a row is not known, and a call for each None would take longer than all the rest.
    names = _named(_names_of(row))
    times = [_time(value) for value in _times_of(row)]
    arrival = _time(row.arrival) or 0.0
    counts = [
        value if value is None or (type(value) is int and 0 <= value <= _MOST) else _count(value)
        for value in _counts_of(row)
    ]
    tiers = [_count(row.by_tier.get(tier)) for tier in TIERS] if row.by_tier else _NO_TIERS
    gone = _divergence(row.divergence)
    status = row.status if 0 <= index(row.status) < 1000 else 0
    STATUSES.index(row.reuse_status)  # a row with another one was made wrong
    return (
        _text(row.id),
        *names,
        _text(row.trace_id),
        row.reuse_status,
        arrival,
        *times,
        bool(row.stream),
        status,
        *counts,
        *[_text(getattr(row, name), _LONGEST_EXPLAINED) for name in _EXPLAINED],
        *tiers,
        *gone,
    )


def decoded(values: Sequence[Any]) -> LedgerRow:
    """The row that `encoded` was given."""
    named = dict(zip(COLUMNS, values, strict=True))
    tiers = {tier: named.pop(tier) for tier in TIERS}
    path, offset, cause, digest = (named.pop(name) for name in _DIVERGENCE)
    named["stream"] = bool(named["stream"])
    return LedgerRow(
        **named,
        by_tier={tier: count for tier, count in tiers.items() if count is not None},
        divergence=None if path is None else Divergence(path, offset, cause, digest),
    )


_NO_TIERS: list[int | None] = [None] * len(TIERS)
_NO_DIVERGENCE = (None, None, None, None)


@lru_cache(maxsize=1_000)
def _named(names: tuple[str | None, ...]) -> Sequence[str | None]:
    """What groups rows, as the columns have it: most rows say what others said."""
    return [_text(value) for value in names]


def _divergence(found: Divergence | None) -> tuple[str | None, int | None, str | None, str | None]:
    if found is None:
        return _NO_DIVERGENCE
    # A row with a path has all four.
    return _text(found.path), _count(found.offset) or 0, _text(found.cause), _text(found.prefix_hash)


def _text(value: str | None, longest: int = _LONGEST) -> str | None:
    if value is None or (value.isascii() and len(value) <= longest and "\0" not in value):
        return value
    # PostgreSQL takes no NUL, and neither database takes half a surrogate pair.
    return value[:longest].replace("\0", "").encode("utf-8", "replace").decode()


def _count(value: int | None) -> int | None:
    return int(value) if value is not None and -_MOST <= value <= _MOST else None


def _time(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None
