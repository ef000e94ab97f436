"""The block size of an engine, from what it reports for prompts that share prefixes of known lengths."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from statistics import median


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """One prompt that shares its beginning with a cached one."""

    shared_words: int
    words: int  # of the whole prompt
    prompt: int  # tokens, as the engine counted
    reused: int  # tokens, as the engine reported


@dataclass(frozen=True, slots=True)
class BlockSize:
    """What the reports allow. `tokens` is None where no shared prefix hit."""

    tokens: int | None
    proven: bool  # False: it may also be a part of `tokens`
    irregular: bool = False  # hits fall short of what is shared by more than one block


def find_block_size(points: Sequence[SharedPrefix]) -> BlockSize:
    """All hits are whole blocks, so the block divides their greatest common divisor g.

    What a hit falls short of the shared tokens is less than one block. How many tokens the template puts in front is
    not known but always the same, so the spread of that shortfall over several prompts is less than one block, too:
    a spread of g/2 and more rules out every smaller divisor of g.
    """
    hits = [point.reused for point in points if point.reused > 0]
    if not hits:
        return BlockSize(None, proven=False)
    common = gcd(*hits)
    rate, slack = _tokens_a_word(points)
    short = [rate * point.shared_words - point.reused for point in points if point.reused > 0]
    spread = max(short) - min(short)
    # Every proper divisor of g is at most g/2.
    proven = common == 1 or spread - slack >= common / 2
    return BlockSize(common, proven, irregular=spread - slack > common)


def _tokens_a_word(points: Sequence[SharedPrefix]) -> tuple[float, float]:
    """Tokens a word, and by how many tokens a count from it may be wrong."""
    low, high = (pick(points, key=lambda point: point.words) for pick in (min, max))
    if low.words == high.words:
        return 1.0, float(high.words)
    rate = (high.prompt - low.prompt) / (high.words - low.words)
    around = median(point.prompt - rate * point.words for point in points)
    return rate, 2 * max(abs(point.prompt - rate * point.words - around) for point in points)
