"""Wilcoxon's signed-rank test (Biometrics Bulletin 1, 1945), exact, for pairs that were measured one behind the other.

Pairs, since an engine gets slower and faster while it is measured; ranks, since one slow answer must not decide.
"""

from collections.abc import Sequence
from statistics import median


def p_value(differences: Sequence[float]) -> float:
    """How often differences that lean nowhere would lean as far to the positive as these do; 1.0 for none.

    Pairs without a difference say nothing and are left out (Wilcoxon's own way); ties get the mean of their ranks.
    """
    given = [each for each in differences if each]
    ranks = _doubled_ranks([abs(each) for each in given])
    seen = sum(rank for rank, each in zip(ranks, given, strict=True) if each > 0)
    ways = [1] + [0] * sum(ranks)  # ways[s]: choices of signs whose positive ranks add up to s
    for rank in ranks:
        for total in range(len(ways) - 1, rank - 1, -1):
            ways[total] += ways[total - rank]
    return sum(ways[seen:]) / (1 << len(given))


def shift(differences: Sequence[float]) -> float:
    """How far the differences lean: Hodges and Lehmann's median of all pairs' means, which belongs to the test."""
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
