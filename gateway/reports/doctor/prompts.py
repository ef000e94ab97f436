"""Prompts to examine an engine with: words that nearly every vocabulary has as one token, in an order never seen."""

from random import Random

_LIST = """
    time people water house world school state family city place night day year work life hand part child eye woman
    man week case point number group problem fact door line book game head food power war road car home room money
    story month business issue side kind area friend father mother hour country member law
"""
_WORDS = _LIST.split()


class ProbePrompts:
    """Word lists from one seed. Two lists from two calls never begin alike, but for chances that do not occur."""

    def __init__(self, seed: int | str) -> None:
        self._random = Random(seed)  # noqa: S311 -- it makes texts, not secrets

    def fresh(self, words: int) -> tuple[str, ...]:
        """A prompt never sent before, as far as its first eight words can tell."""
        return tuple(self._random.choices(_WORDS, k=words))

    def lengths(self, words: int, shares: tuple[float, ...]) -> list[int]:
        """About those shares of `words`, each a little less by chance, so that they have no divisor in common."""
        return [int(share * words) - self._random.randrange(max(1, words // 20)) for share in shares]

    def branch(self, trunk: tuple[str, ...], shared: int, tail: int = 12) -> tuple[str, ...]:
        """The first `shared` words of `trunk`, then `tail` others of which the first is not the trunk's next."""
        others = [word for word in _WORDS if word != trunk[shared]]
        return (*trunk[:shared], self._random.choice(others), *self.fresh(tail - 1))


def text_of(words: tuple[str, ...]) -> str:
    """Words as a text that tokenizes word by word: only one blank before each."""
    return " ".join(words)
