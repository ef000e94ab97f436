"""Sums over rows by group and class."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gateway.reports.rows.classes import CLASSES
from gateway.reports.rows.facts import Facts

_CLASSES = len(CLASSES)


class Sums:
    """`sums[name]` has shape [groups, classes]. Whole numbers stay exact up to 2^53."""

    def __init__(self) -> None:
        self._sums: dict[str, NDArray[np.float64]] = {}
        self._groups = 0

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        return self._sums.get(name, np.zeros((self._groups, _CLASSES)))

    def add(self, groups: NDArray[np.int64], count: int, facts: Facts) -> None:
        """Rows of one chunk: the group of each, and how many groups there are by now."""
        self._groups = count
        cells = groups * _CLASSES + facts.kind
        for name, values in _values(facts).items():
            weights = None if values is None else np.nan_to_num(values)
            counted = np.bincount(cells, weights, count * _CLASSES).reshape(count, _CLASSES)
            added = counted.astype(np.float64, copy=False)
            if (known := self._sums.get(name)) is not None:
                added[: len(known)] += known
            self._sums[name] = added


def _values(facts: Facts) -> Mapping[str, NDArray[np.float64] | None]:
    """What is summed. None: each row counts as one."""
    consistent = facts.consistent
    reused = np.where(consistent, facts.reused, 0.0)
    tiers = {tier: np.where(consistent, tokens, 0.0) for tier, tokens in facts.tiers.items()}
    in_tiers = np.sum([np.nan_to_num(tokens) for tokens in facts.tiers.values()], axis=0)
    says_tiers = np.any([~np.isnan(tokens) for tokens in facts.tiers.values()], axis=0)
    with np.errstate(invalid="ignore"):
        whole = np.mod(facts.reused, facts.block) == 0
    all_but_one = facts.reused == facts.prompt - 1
    return {
        "requests": None,
        "prompt": facts.prompt,
        "completion": facts.completion,
        "reused": reused,
        "recomputed": np.where(consistent, facts.prompt - facts.reused, 0.0),
        **tiers,
        "in tiers": np.where(consistent & says_tiers, in_tiers, 0.0),
        "streams": facts.stream,
        # For the invariants:
        "all but one": np.where(consistent, all_but_one, 0.0),
        "zero": np.where(consistent, facts.reused == 0, 0.0),
        "zero, predicted": np.where(consistent & (facts.reused == 0), facts.predicted > 0, 0.0),
        "streams, zero, predicted": np.where(
            consistent & (facts.reused == 0), (facts.predicted > 0) * facts.stream, 0.0
        ),
        "predicted": np.where(consistent, facts.predicted > 0, 0.0),
        "streams, predicted": np.where(consistent, (facts.predicted > 0) * facts.stream, 0.0),
        "off tiers": np.where(consistent & says_tiers, in_tiers != facts.reused, 0.0),
        "off block": np.where(consistent & (facts.block > 1), ~whole & ~all_but_one, 0.0),
        "over matched": np.where(consistent, facts.reused > facts.matched, 0.0),
    }
