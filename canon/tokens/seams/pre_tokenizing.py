"""Does a pre-tokenizer treat both sides of a cut as it would treat them alone?

Each step is asked whether it keeps away from the cut: no match spans it, and what is matched before it does not hang
on what stands behind. Where one of the steps also begins a new piece at the cut, nothing after it sees both sides
together.
"""

import unicodedata
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from tokenizers import pre_tokenizers

from canon.tokens.seams.border import Border
from canon.tokens.seams.regex_shape import RegexShape, ShapeError, literal

# The expression built into `ByteLevel`, from GPT-2.
_BYTE_LEVEL = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WHITESPACE = r"\w+|[^\w\s]+"  # built into `Whitespace`


class Effect(Enum):
    """What a pre-tokenizer, or a step of one, does at a cut."""

    SPLITS = "begins a new piece there, always"
    KEEPS_AWAY = "does the same on either side as without the other"
    UNKNOWN = "cannot be told"


def at_border(pre_tokenizer: Any, border: Border) -> tuple[Effect, Border]:
    """The effect of the whole of `pre_tokenizer` (its description), and the border as the model gets it."""
    for step in _steps(pre_tokenizer):
        try:
            effect, border = _step(step, border)
        except ShapeError:
            effect = Effect.UNKNOWN
        if effect is not Effect.KEEPS_AWAY:
            return effect, border
    return Effect.KEEPS_AWAY, border


def _steps(part: Any) -> Iterable[Mapping[str, Any]]:
    if isinstance(part, dict) and part.get("type") == "Sequence":
        for inner in part["pretokenizers"]:
            yield from _steps(inner)
    elif part is not None:
        yield part


def _step(step: Mapping[str, Any], border: Border) -> tuple[Effect, Border]:
    kind = step.get("type")
    if kind == "ByteLevel":
        return _byte_level(step, border)
    if kind == "Metaspace":
        return _metaspace(step, border)
    if kind == "Split":
        return _split(_pattern(step["pattern"]), step["behavior"], border), border
    if kind == "Whitespace":
        return _split(_WHITESPACE, "Removed", border), border
    return _by_class(kind, step, border), border


def _byte_level(step: Mapping[str, Any], border: Border) -> tuple[Effect, Border]:
    if step.get("add_prefix_space", True) and border.right != " ":
        return Effect.UNKNOWN, border  # the right side alone would get a blank
    effect = Effect.KEEPS_AWAY
    if step.get("use_regex", True):
        effect = _split(_BYTE_LEVEL, "Isolated", border)
    if effect is not Effect.KEEPS_AWAY:
        return effect, border
    bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    mapped = border.mapped(lambda text: bytes_of.pre_tokenize_str(text)[0][0])
    return (effect, mapped) if mapped else (Effect.UNKNOWN, border)


def _metaspace(step: Mapping[str, Any], border: Border) -> tuple[Effect, Border]:
    sign = step["replacement"]
    if border.right not in (" ", sign):
        return Effect.UNKNOWN, border  # the right side alone might get a blank
    effect = Effect.SPLITS if step.get("split", True) else Effect.KEEPS_AWAY
    return effect, Border(border.left, sign)


def _pattern(pattern: Mapping[str, str]) -> str:
    return pattern["Regex"] if "Regex" in pattern else literal(pattern["String"])


def _split(pattern: str, behavior: str, border: Border) -> Effect:
    shape = RegexShape(pattern, border.characters)
    if border.left & shape.before(border.right):
        return Effect.UNKNOWN
    if behavior not in ("Isolated", "Removed"):
        # Matches are put together with what stands beside them.
        return Effect.UNKNOWN if shape.taken() else Effect.KEEPS_AWAY
    always = shape.always_taken()
    # Between two matches, or a match and what is none, a new piece begins.
    return Effect.SPLITS if border.right in always or border.left <= always else Effect.KEEPS_AWAY


def _by_class(kind: Any, step: Mapping[str, Any], border: Border) -> Effect:
    """The steps that look at one character at a time."""
    right_is_blank = border.right.isspace()
    if kind == "WhitespaceSplit":
        return Effect.SPLITS if right_is_blank else Effect.KEEPS_AWAY
    if kind == "BertPreTokenizer":
        return Effect.SPLITS if right_is_blank or _is_punctuation(border.right) else Effect.KEEPS_AWAY
    if kind == "Punctuation":
        return _touching(border, _is_punctuation, splits=step.get("behavior") in ("Isolated", "Removed"))
    if kind == "Digits":
        return _touching(border, _is_digit, splits=step.get("individual_digits", False))
    return Effect.UNKNOWN


def _touching(border: Border, taken: Any, *, splits: bool) -> Effect:
    sides = [taken(character) for character in (*border.left, border.right)]
    if not any(sides):
        return Effect.KEEPS_AWAY
    return Effect.SPLITS if splits and (sides[-1] or all(sides[:-1])) else Effect.UNKNOWN


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character).startswith("P") or (
        character.isascii() and character.isprintable() and not character.isalnum() and character != " "
    )


def _is_digit(character: str) -> bool:
    return unicodedata.category(character).startswith("N")
