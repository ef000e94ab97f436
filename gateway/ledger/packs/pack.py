"""Rows turned into columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gateway.ledger.encoding import COLUMNS, COUNTS, TIERS, Encoded

PACKED_COUNTS: tuple[str, ...] = (*COUNTS, *TIERS, "divergence_offset", "status", "stream")
PACKED_NUMBERS: tuple[str, ...] = ("arrival", "ttft", "duration", *PACKED_COUNTS)
PACKED_TEXTS: tuple[str, ...] = (
    "tenant", "model", "route", "engine", "replica", "reuse_source", "reuse_status", "gap_cause", "canon_policy",
    "finish", "error", "divergence_cause",
)  # fmt: skip
GATHERED: tuple[str, ...] = ("arrival", "first_token", "end", *PACKED_COUNTS, *PACKED_TEXTS)

_LONGEST_SPAN = 1e30  # seconds; nothing longer fits the four bytes that a span has


class Coded(NamedTuple):
    """Texts of one column: each row has a place in `labels`, shape [rows]. None is a label like any other."""

    labels: list[str | None]
    places: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Pack:
    """Columns of some rows.

    Attributes:
        numbers: float64 of shape [rows], NaN is `not known`. `ttft` and `duration` are seconds from the arrival.
            What is not known of any row may be missing.
        texts: what is None in every row may be missing.
    """

    rows: int
    numbers: dict[str, NDArray[np.float64]]
    texts: dict[str, Coded]


def gathered(rows: Sequence[Encoded], names: Sequence[str] = COLUMNS) -> Pack:
    """One row or more, of which each has these columns, those of `GATHERED` among them."""
    given = dict(zip(names, zip(*rows, strict=True), strict=True))
    numbers = {"arrival": _floats(given["arrival"])}
    for name, moment in (("ttft", "first_token"), ("duration", "end")):
        with np.errstate(over="ignore"):
            spans = _floats(given[moment]) - numbers["arrival"]
        spans[np.abs(spans) >= _LONGEST_SPAN] = np.nan
        numbers[name] = spans.astype(np.float32).astype(np.float64)
    for name in PACKED_COUNTS:
        if given[name].count(None) < len(rows):
            numbers[name] = _floats(given[name])
    return Pack(len(rows), numbers, {name: _coded(given[name]) for name in PACKED_TEXTS})


def joined(first: Pack, second: Pack) -> Pack:
    """The rows of both, one behind the other."""
    parts = (first, second)
    return Pack(
        first.rows + second.rows,
        {
            name: np.concatenate([part.numbers.get(name, np.full(part.rows, np.nan)) for part in parts])
            for name in first.numbers | second.numbers
        },
        {
            name: _both(*(part.texts.get(name, _nothing(part.rows)) for part in parts))
            for name in first.texts | second.texts
        },
    )


def kept(pack: Pack, which: NDArray[np.bool_]) -> Pack:
    """The rows with True; no text stays that none of them has."""
    return Pack(
        int(which.sum()),
        {name: values[which] for name, values in pack.numbers.items()},
        {name: _used(Coded(its.labels, its.places[which])) for name, its in pack.texts.items()},
    )


def _floats(values: Sequence[Any]) -> NDArray[np.float64]:
    return np.array(values, np.float64)  # which makes NaN of None


def _coded(values: Sequence[str | None]) -> Coded:
    place = {text: at for at, text in enumerate(dict.fromkeys(values))}
    if len(place) == 1:
        return Coded(list(place), np.zeros(len(values), np.int32))
    return Coded(list(place), np.fromiter(map(place.__getitem__, values), np.int32, len(values)))


def _nothing(rows: int) -> Coded:
    return Coded([None], np.zeros(rows, np.int32))


def _both(first: Coded, second: Coded) -> Coded:
    if first.labels == second.labels:
        return Coded(first.labels, np.concatenate([first.places, second.places]))
    place = {text: at for at, text in enumerate(dict.fromkeys([*first.labels, *second.labels]))}
    renamed = np.array([place[text] for text in second.labels], np.int32)
    return Coded(list(place), np.concatenate([first.places, renamed[second.places]]))


def _used(coded: Coded) -> Coded:
    used, places = np.unique(coded.places, return_inverse=True)
    return Coded([coded.labels[at] for at in used], places.astype(np.int32))
