from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canon.lint import lint
from gateway.ledger import LedgerConfigError
from gateway.ledger.capture import Redaction

KEY = b"k" * 32
BODY = {
    "model": "m",
    "user": "alice@example.org",
    "messages": [
        {"role": "system", "content": "Rules of the house.\nCall me under 0171 2345678.\n"},
        {"role": "user", "content": [{"type": "text", "text": "my card is 4111"}]},
    ],
    "metadata": {"a": {"b": 1}, "list": [1, 2]},
}


def test_what_a_path_names_becomes_a_mark_and_nothing_else_changes() -> None:
    got = Redaction(["user", "messages[1].content[*].text", "metadata.*"]).applied(BODY, KEY)
    assert got["user"].startswith("[redacted ")
    assert got["messages"][1]["content"][0]["text"].startswith("[redacted ")
    assert set(got["metadata"]) == {"a", "list"}
    assert all(value.startswith("[redacted ") for value in got["metadata"].values())
    assert got["messages"][0] == BODY["messages"][0]  # type: ignore[index]
    assert BODY["user"] == "alice@example.org"


def test_what_a_pattern_matches_becomes_a_mark_in_any_text() -> None:
    got = Redaction(patterns=[r"\d{4,}"]).applied(BODY, KEY)
    assert "2345678" not in repr(got)
    assert "4111" not in repr(got)
    assert got["messages"][0]["content"].startswith("Rules of the house.\nCall me under [redacted ")


def test_equal_texts_leave_equal_marks_under_one_key_and_others_under_another() -> None:
    redaction = Redaction(["user"])
    assert redaction.applied(BODY, KEY)["user"] == redaction.applied(BODY, KEY)["user"]
    assert redaction.applied(BODY, KEY)["user"] != redaction.applied(BODY, b"j" * 32)["user"]


def strings(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value) | {text for each in value.values() for text in strings(each)}
    if isinstance(value, list):
        return {text for each in value for text in strings(each)}
    return {value} if isinstance(value, str) else set()


secrets = st.text(st.characters(categories=["Lu", "Nd"]), min_size=8, max_size=30)
bodies = st.recursive(
    secrets | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(secrets, inner)
)


@given(bodies)
def test_of_a_structure_no_text_is_left(body: Any) -> None:
    got = Redaction(structure_only=True).applied(body, KEY)
    assert not strings(body) & strings(got)


def test_a_structure_breaks_prefixes_where_the_text_does_and_costs_as_many_bytes() -> None:
    rules = "\n".join(f"Rule {n} of the house stands, whoever may ask." for n in range(60))
    bodies = [
        {"model": "m", "messages": [{"role": "system", "content": f"{rules}\nIt is {n}:00.\n{rules}"}]}
        for n in (10, 11)
    ]
    hidden = [Redaction(structure_only=True).applied(body, KEY) for body in bodies]
    assert lint(hidden).reuse_before == pytest.approx(lint(bodies).reuse_before, abs=0.02)
    assert lint(hidden).reuse_before > 0.2
    assert hidden[0]["messages"][0]["role"] == "system"


@pytest.mark.parametrize("path", ["", "a..b", "[x]", "messages[", "]"])
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(LedgerConfigError, match="no path"):
        Redaction([path])


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(LedgerConfigError, match="no regular expression"):
        Redaction(patterns=["("])


def test_a_body_nested_without_end_is_cut() -> None:
    deep: Any = "bottom"
    for _ in range(5000):
        deep = [deep]
    assert "bottom" not in repr(Redaction(patterns=["x"]).applied(deep, KEY))
