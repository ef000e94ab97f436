"""Rows as a database takes them, and back; and the fixed-width piece that reports read."""

import math
import struct
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from operator import attrgetter
from typing import Any, TypeAlias, get_args

import numpy as np

from engine_adapters.base import ReuseStatus, Tier
from gateway.ledger.row import Divergence, LedgerRow

Encoded: TypeAlias = tuple[Any, ...]  # one value a column, in the order of `COLUMNS`

TIERS: tuple[Tier, ...] = get_args(Tier)
STATUSES: tuple[ReuseStatus, ...] = get_args(ReuseStatus)

_LONGEST = 200  # characters of a text
_LONGEST_EXPLAINED = 32_768
_MOST = 2**31 - 1  # of a count; what is said beyond it is no count
NO_COUNT = -(2**31)  # a count that is not known, in the packed piece

_TEXTS = (
    "id", "tenant", "model", "route", "engine", "replica", "reuse_source", "gap_cause", "canon_policy",
    "finish", "error", "trace_id",
)  # fmt: skip
_TIMES = ("first_token", "end")
_COUNTS = (
    "prompt", "reused", "matched", "completion", "reasoning", "predicted", "block_size", "canon_rules",
    "canon_edits", "canon_saved", "retries",
)  # fmt: skip
_LATER = (
    "attempts",
)  # counts that no report adds up: the packed piece keeps the form that it has in old rows
_EXPLAINED = (
    "route_reason",
    "route_scores",
)  # texts that no report groups by, nor do they fit 200 characters
_DIVERGENCE = ("divergence_path", "divergence_offset", "divergence_cause", "divergence_hash")

COLUMNS: tuple[str, ...] = (
    *_TEXTS, "reuse_status", "arrival", *_TIMES, "stream", "status", *_COUNTS, *_LATER, *_EXPLAINED, *TIERS,
    *_DIVERGENCE, "packed",
)  # fmt: skip

PACKED_COUNTS: tuple[str, ...] = (*_COUNTS, *TIERS, "divergence_offset")
PACKED_TEXTS: tuple[str, ...] = (
    "tenant", "model", "route", "engine", "replica", "reuse_source", "gap_cause", "canon_policy", "finish",
    "error", "divergence_cause",
)  # fmt: skip

PACKED = np.dtype(
    [
        ("arrival", "<f8"),
        ("ttft", "<f4"),  # seconds from arrival to the first token; NaN: not known
        ("duration", "<f4"),  # seconds from arrival to the end; NaN: not known
        *((name, "<i4") for name in PACKED_COUNTS),
        ("status", "<i2"),
        ("reuse_status", "i1"),  # its place in `STATUSES`
        ("stream", "i1"),
        *((name, "<i8") for name in PACKED_TEXTS),  # `text_code`; 0: None
    ]
)  # packed, without padding, little endian
_pack = struct.Struct(f"<dff{len(PACKED_COUNTS)}ihbb{len(PACKED_TEXTS)}q").pack

_names_of = attrgetter(*_TEXTS[1:-1])
_times_of = attrgetter(*_TIMES)
_counts_of = attrgetter(*_COUNTS)


def encoded(row: LedgerRow) -> Encoded:
    """One row. Texts are cut at 200 characters, and numbers that can be no count or time become None."""
    # Most of a row is not known, and a call for each None would take longer than all the rest.
    names, codes = _named(_names_of(row))
    times = [_time(value) for value in _times_of(row)]
    arrival = _time(row.arrival) or 0.0
    counts = [
        value if value is None or (type(value) is int and 0 <= value <= _MOST) else _count(value)
        for value in _counts_of(row)
    ]
    tiers = [_count(row.by_tier.get(tier)) for tier in TIERS] if row.by_tier else _NO_TIERS
    gone = _divergence(row.divergence)
    status = row.status if 0 <= row.status < 1000 else 0
    packed = _pack(
        arrival,
        *[math.nan if value is None else _span(value - arrival) for value in times],
        *[NO_COUNT if value is None else value for value in (*counts, *tiers, gone[1])],
        status,
        STATUSES.index(row.reuse_status),
        row.stream,
        *codes,
        0 if gone[2] is None else text_code(gone[2]),
    )
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
        *[_count(getattr(row, name)) for name in _LATER],
        *[_text(getattr(row, name), _LONGEST_EXPLAINED) for name in _EXPLAINED],
        *tiers,
        *gone,
        packed,
    )


def decoded(values: Sequence[Any]) -> LedgerRow:
    """The row that `encoded` was given."""
    named = dict(zip(COLUMNS, values, strict=True))
    tiers = {tier: named.pop(tier) for tier in TIERS}
    path, offset, cause, digest = (named.pop(name) for name in _DIVERGENCE)
    del named["packed"]
    named["stream"] = bool(named["stream"])
    return LedgerRow(
        **named,
        by_tier={tier: count for tier, count in tiers.items() if count is not None},
        divergence=None if path is None else Divergence(path, offset, cause, digest),
    )


@lru_cache(maxsize=10_000)
def text_code(text: str) -> int:
    """What stands for a text in the packed piece: 64 bits of its hash, never 0."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little", signed=True) or 1


_NO_TIERS: list[int | None] = [None] * len(TIERS)
_NO_DIVERGENCE = (None, None, None, None)
assert ("id", *PACKED_TEXTS[:-1], "trace_id") == _TEXTS


@lru_cache(maxsize=1_000)
def _named(names: tuple[str | None, ...]) -> tuple[Sequence[str | None], Sequence[int]]:
    """What groups rows, as the columns have it and as the packed piece does: most rows say what others said."""
    texts = [_text(value) for value in names]
    return texts, [0 if value is None else text_code(value) for value in texts]


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


def _span(seconds: float) -> float:
    return seconds if abs(seconds) < 1e30 else math.nan
