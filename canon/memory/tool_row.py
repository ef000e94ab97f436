"""The order of tools within a conversation."""

from collections.abc import Iterable, Sequence


def as_sent(names: Sequence[str], sent_before: Iterable[Sequence[str]]) -> list[str]:
    """`names` with those that were sent before in front, in their order, and the rest behind, as given.

    Of several earlier orders (conversations that began alike) the one that fits best counts, the latest if in doubt.
    """
    offered = set(names)
    best: Sequence[str] = ()
    best_fit = (0, 0)
    for row in sent_before:
        common = len(offered.intersection(row))
        fit = (common, -(len(row) - common))
        if fit >= best_fit:
            best, best_fit = row, fit
    front = [name for name in dict.fromkeys(best) if name in offered]
    return front + [name for name in names if name not in set(best)]
