"""What the automaton says of an expression holds for what the engine does with it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from canon.tokens.seams.regex_shape import RegexShape, ShapeError, literal
from tests.canon.sample_tokenizers import EXPRESSIONS

ALPHABET = "ab1 \n,'中"

ATOMS = st.sampled_from(
    ("a", "b", "1", " ", ",", "'", "[ab]", "[^a ]", r"\s", r"\S", r"\p{L}", r"\p{N}", r"[^\s\p{L}]", ".")
)
QUANTIFIERS = st.sampled_from(("", "", "?", "*", "+", "{1,2}", "{2}", "??", "+?"))
LOOKAHEADS = st.sampled_from((r"(?!\S)", r"(?=\s)", "(?!a)"))


def _combined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = st.builds("(?:{}){}".format, st.lists(parts, min_size=1, max_size=3).map("|".join), QUANTIFIERS)
    return st.lists(st.one_of(parts, group, LOOKAHEADS), min_size=1, max_size=3).map("".join)


PATTERNS = st.recursive(st.builds("{}{}".format, ATOMS, QUANTIFIERS), _combined, max_leaves=5)
PATTERN = st.one_of(
    st.lists(PATTERNS, min_size=1, max_size=4).map("|".join), st.sampled_from(list(EXPRESSIONS.values()))
)
TEXT = st.text(st.sampled_from(ALPHABET), max_size=12)


def _matches(pattern: str, text: str) -> list[str]:
    """What `text` is split into: the matches, and what lies between them."""
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    return [piece for piece, _ in split.pre_tokenize_str(text)]


def _shape(pattern: str) -> RegexShape | None:
    try:
        return RegexShape(pattern, ALPHABET)
    except ShapeError:
        return None


@settings(max_examples=600, deadline=None)
@given(pattern=PATTERN, left=TEXT, right=TEXT)
def test_where_the_automaton_keeps_two_characters_apart_both_sides_split_as_they_do_alone(
    pattern: str, left: str, right: str
) -> None:
    shape = _shape(pattern)
    if shape is None or not left or not right or left[-1] in shape.before(right[0]):
        return
    whole, apart = _matches(pattern, left + right), [*_matches(pattern, left), *_matches(pattern, right)]
    if right[0] in shape.always_taken() or left[-1] in shape.always_taken():
        assert whole == apart
    else:  # what no match takes may stand on both sides
        assert _joined(whole, len(left)) == _joined(apart, len(left))


def _joined(pieces: list[str], at: int) -> list[str]:
    """`pieces` with a border at `at`, if there is none."""
    found: list[str] = []
    done = 0
    for piece in pieces:
        cut = at - done
        found += [piece[:cut], piece[cut:]] if 0 < cut < len(piece) else [piece]
        done += len(piece)
    return found


@pytest.mark.parametrize(
    "pattern",
    [
        "^a",
        "a$",
        r"\bword",
        r"(?<=a)b",
        r"(a)\1",
        "a(?!bc)",
        "a*",
        "(?>a)b",
        r"\Ga",
        "a{,2}",
        "(a",
        "a(?!b)*",
    ],
)
def test_what_is_not_understood_is_refused(pattern: str) -> None:
    with pytest.raises(ShapeError):
        RegexShape(pattern, ALPHABET)


def test_models_expressions_are_understood() -> None:
    for pattern in EXPRESSIONS.values():
        shape = RegexShape(pattern, ALPHABET)
        assert "a" not in shape.before(" ")
        assert " " in shape.always_taken()
        assert " " in shape.before("a")


def test_a_literal_matches_itself() -> None:
    text = ".*+?[](){}|^$ \n-_a中"
    assert _matches(literal(text), f"x{text}y") == ["x", text, "y"]
