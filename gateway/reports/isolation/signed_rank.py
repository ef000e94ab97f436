"""Wilcoxon's signed-rank test (Biometrics Bulletin 1, 1945), exact, for pairs that were measured one behind the other.

Pairs, since an engine gets slower and faster while it is measured; ranks, since one slow answer must not decide. For
the same reason no rank counts for more than the middle one: on a busy machine the largest differences are those that
say least. The test stays exact, as any weights of the sizes would leave it: without a leak each sign is a coin's.
"""

from collections.abc import Sequence
from math import gcd
from statistics import median

import numpy as np


def p_value(differences: Sequence[float]) -> float:
    """How often differences that lean nowhere would lean as far to the positive as these do; 1.0 for none.

    Pairs without a difference say nothing and are left out (Wilcoxon's own way); ties get the mean of their ranks,
    and ranks above the middle count as the middle one.
    """
    given = [each for each in differences if each]
    if not given:
        return 1.0
    most = len(given) + 1  # twice the middle rank
    ranks = [min(rank, most) for rank in _doubled_ranks([abs(each) for each in given])]
    unit = gcd(*ranks)
    seen = sum(rank for rank, each in zip(ranks, given, strict=True) if each > 0) // unit
    chances = np.zeros(sum(ranks) // unit + 1)  # [s]: that the positive ranks add up to s
    chances[0] = 1.0
    end = 1
    for rank in ranks:
        chances[:end] /= 2
        step = rank // unit
        chances[step : step + end] += chances[:end].copy()
        end += step
    return float(chances[seen:].sum())


def shift(differences: Sequence[float]) -> float:
    """How far the differences lean: Hodges and Lehmann's median of all pairs' means."""
    if not differences:
        return 0.0
    return median((one + other) / 2 for i, one in enumerate(differences) for other in differences[i:])


def _doubled_ranks(sizes: Sequence[float]) -> list[int]:
    """Twice the rank of each, which is whole even where ties share a mean."""
    order = sorted(range(len(sizes)), key=lambda i: sizes[i])
    ranks = [0] * len(sizes)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and sizes[order[end]] == sizes[order[start]]:
            end += 1
        for place in order[start:end]:
            ranks[place] = start + 1 + end
        start = end
    return ranks
