"""Both sides of a cut, on their way through a tokenizer."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Border:
    """What may stand before the cut, and what stands behind it, as the tokenizer has rewritten them so far."""

    left: frozenset[str]
    right: str

    @property
    def characters(self) -> str:
        return "".join(sorted(self.left | {self.right}))

    def mapped(self, change: Callable[[str], str]) -> "Border | None":
        """With every text of one character rewritten; None where one of them vanishes."""
        left, right = {change(character) for character in self.left}, change(self.right)
        if not right or "" in left:
            return None
        return Border(frozenset(text[-1] for text in left), right[0])
