"""Does a normalizer rewrite both sides of a cut as it would rewrite them alone?"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from tokenizers import Tokenizer

from canon.tokens.seams.border import Border
from canon.tokens.seams.candidates import Seam
from canon.tokens.seams.regex_shape import RegexShape, ShapeError, literal

# Those that go by single characters, by grapheme clusters, or by what Unicode composes: a blank, a line end and
# punctuation begin a cluster and compose with nothing in front of them.
_BY_CHARACTER = frozenset(
    (
        "BertNormalizer",
        "ByteLevel",
        "Lowercase",
        "NFC",
        "NFD",
        "NFKC",
        "NFKD",
        "Nmt",
        "Precompiled",
        "StripAccents",
    )
)


@dataclass(frozen=True, slots=True)
class _Sides:
    """The texts that may stand before a cut and right behind it, and those that come next."""

    left: frozenset[str]
    right: str
    behind: frozenset[str]


def normalized_border(normalizer: Any, seam: Seam) -> Border | None:
    """The border as the pre-tokenizer gets it; None where both sides may be rewritten together.

    `normalizer` is a description, without what puts something before a text.
    """
    sides = _Sides(frozenset(seam.left), seam.right, frozenset(seam.behind))
    for step in steps_of(normalizer):
        if (rewritten := _rewritten(step, sides)) is None:
            return None
        sides = rewritten
    return Border(frozenset(text[-1] for text in sides.left), sides.right[0])


def steps_of(normalizer: Any) -> Iterable[Mapping[str, Any]]:
    """The steps of a normalizer's description, those inside sequences too."""
    if isinstance(normalizer, dict) and normalizer.get("type") == "Sequence":
        for inner in normalizer["normalizers"]:
            yield from steps_of(inner)
    elif normalizer is not None:
        yield normalizer


def _rewritten(step: Mapping[str, Any], sides: _Sides) -> _Sides | None:
    if step.get("type") == "Replace":
        return _replaced(step, sides)
    return _by_character(step, sides) if step.get("type") in _BY_CHARACTER else None


def _replaced(step: Mapping[str, Any], sides: _Sides) -> _Sides | None:
    """One character is replaced wherever it stands; anything longer must leave what stands at the cut alone."""
    pattern: Mapping[str, str] = step["pattern"]
    text = pattern.get("String")
    if text is not None and len(text) == 1:
        return _by_character(step, sides)
    left, right = frozenset(side[-1] for side in sides.left), sides.right
    behind = frozenset(side[0] for side in sides.behind)
    try:
        shape = RegexShape(
            pattern["Regex"] if text is None else literal(text), "".join({*left, *right, *behind})
        )
    except ShapeError:
        return None
    goes_on = any(right in shape.before(character) for character in behind & shape.taken())
    takes_right = right in shape.whole() or (right in shape.taken() and goes_on)
    if len(right) != 1 or shape.looks_ahead or left & shape.taken() or takes_right:
        return None
    return sides


def _by_character(step: Mapping[str, Any], sides: _Sides) -> _Sides | None:
    change = _function(step)
    left, right, behind = _each(change, sides.left), change(sides.right), _each(change, sides.behind)
    return None if "" in left or "" in behind or not right else _Sides(left, right, behind)


def _each(change: Callable[[str], str], texts: frozenset[str]) -> frozenset[str]:
    together = "".join(texts)
    return texts if change(together) == together else frozenset(map(change, texts))


def _function(step: Mapping[str, Any]) -> Callable[[str], str]:
    model = {"type": "BPE", "vocab": {}, "merges": []}
    description = {"version": "1.0", "added_tokens": [], "normalizer": step, "model": model}
    normalizer = Tokenizer.from_str(orjson.dumps(description).decode()).normalizer
    if normalizer is None:
        return lambda text: text
    change: Callable[[str], str] = normalizer.normalize_str
    return change
