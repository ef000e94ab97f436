"""Rewritten JSON means what it meant, whichever way it was read; what might lose something is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canon.errors import JsonRefusedError
from canon.lossless import canonical, read
from canon.lossless.canonical import write
from canon.lossless.reader import MAX_DEPTH

NUMBERS = st.sampled_from(
    [
        "0",
        "-0",
        "1",
        "-12",
        "1.0",
        "1.10",
        "1e400",
        "1E2",
        "1e+2",
        "9007199254740993",
        "0.30000000000000004",
        "-0.0e-0",
    ]
)
ESCAPED = [
    "\\u00e9",
    "\\u00E9",
    "\\n",
    "\\u000a",
    "\\/",
    "\\\\",
    '\\"',
    "\\ud83d\\ude00",
    "\\uD83D\\uDE00",
    "\\ud800",
]
ESCAPED += ["\\u2028", "\\u0041", "\\u200d", "\\u0000", "\\b"]
RAW = ["a", "é", "/", "😀", "\u2028", "A", " ", "{", "[", ",", "\x7f"]
SPELLED = st.sampled_from(ESCAPED + RAW)
STRINGS = st.lists(SPELLED, max_size=5).map(lambda pieces: '"' + "".join(pieces) + '"')
BLANKS = st.sampled_from(["", " ", "\n  ", "\t", "\r\n"])


def joined(start: str, items: list[str], end: str, blank: str) -> str:
    return start + blank + f"{blank},{blank}".join(items) + blank + end


def containers(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    lists = st.builds(joined, st.just("["), st.lists(values, max_size=4), st.just("]"), BLANKS)
    member = st.builds(lambda name, blank, value: f"{name}{blank}:{blank}{value}", STRINGS, BLANKS, values)
    return lists | st.builds(joined, st.just("{"), st.lists(member, max_size=4), st.just("}"), BLANKS)


TEXTS = st.recursive(
    NUMBERS | STRINGS | st.sampled_from(["true", "false", "null"]), containers, max_leaves=15
)


def exact(text: str) -> Any:
    """The value with numbers as spelled, members by name, and names that occur twice seen."""

    def members(pairs: list[tuple[str, Any]]) -> Any:
        if len(dict(pairs)) < len(pairs):
            raise JsonRefusedError("twice")
        return ("object", sorted(pairs))

    number = {"parse_int": lambda s: ("number", s), "parse_float": lambda s: ("number", s)}
    try:
        return json.loads(text, object_pairs_hook=members, **number)
    except TypeError:  # values of members of one name were compared; names differ, so this cannot be
        raise AssertionError from None


@given(TEXTS)
def test_it_means_the_same_and_is_canonical(text: str) -> None:
    try:
        means = exact(text)
    except JsonRefusedError:
        with pytest.raises(JsonRefusedError):
            canonical(text)
        return
    once = canonical(text)
    assert exact(once) == means
    assert canonical(once) == once
    assert write(read(text)[0]) == once


@given(TEXTS, st.integers(0, 200), st.sampled_from(["", ",", "x", '"', "}", "]", "1", "\\", "NaN", "\n"]))
def test_a_damaged_text_is_refused_exactly_if_the_standard_library_refuses_it(
    text: str, at: int, put: str
) -> None:
    damaged = text[:at] + put + text[at + 1 :]
    try:
        json.loads(damaged, parse_constant=lambda name: exact("x"))
        exact(damaged)
    except ValueError:
        with pytest.raises(JsonRefusedError):
            canonical(damaged)
    else:
        assert exact(canonical(damaged)) == exact(damaged)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{ "b" : 1 ,\n "a" : [ 1.0 , 1e400 , -0 ] }', '{"a":[1.0,1e400,-0],"b":1}'),
        ('{"z":"\\u00e9\\u4e2d\\ud83d\\ude00\\u3000"}', '{"z":"é中😀\u3000"}'),
        ('"\\u2028\\uD800\\uFEFF\\u001F\\u000a\\/"', '"\\u2028\\ud800\\ufeff\\u001f\\n/"'),
        ('"\u2028é"', '"\u2028é"'),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ('{"b":1,"\\u0061":2}', '{"a":2,"b":1}'),
    ],
)
def test_the_form(text: str, expected: str) -> None:
    assert canonical(text) == expected
    assert write(read(text)[0]) == expected


LOSSY = ['{"a":1,"a":1}', '{"a":1,"\\u0061":2}', "NaN", "[Infinity]", "-Infinity"]
NO_JSON = [
    "",
    " ",
    "{} {}",
    "[1,]",
    "{'a':1}",
    "01",
    "1.",
    "+1",
    ".5",
    '"\t"',
    '"\\x"',
    '"\\u12"',
    "\ufeff{}",
    "{",
    '"',
]
NO_JSON += ["[1 2]", '{"a" 1}', "{1:2}", "tru", "nulls"]


@pytest.mark.parametrize("text", LOSSY + NO_JSON)
def test_what_is_no_json_or_would_lose_something_is_refused(text: str) -> None:
    with pytest.raises(JsonRefusedError):
        canonical(text)


def test_depth_is_bounded_whoever_reads_it() -> None:
    for start, end in (("[", "]"), ('{"a":', "}"), ('{"\\u0061":', "}")):
        text = start * MAX_DEPTH + "1" + end * MAX_DEPTH
        assert canonical(text) == write(read(text)[0])
        for deeper in (1, 1000, 100_000):
            with pytest.raises(JsonRefusedError):
                canonical(start * (MAX_DEPTH + deeper) + "1" + end * (MAX_DEPTH + deeper))
    wide = "[" + "[[[1]]]," * 1000 + "0]"
    assert canonical(wide) == wide


@pytest.mark.parametrize(
    "piece", ['"', "\\", '"\\', "[", "{", '{"', "1", "1e", "-", " ", '["', "\\u00", "1.1", '"a",']
)
def test_a_long_text_that_is_no_json_is_refused_in_linear_time(piece: str) -> None:
    """A quadratic reader would not come back."""
    with pytest.raises(JsonRefusedError):
        canonical(piece * 300_000 + "x")
