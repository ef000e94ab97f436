"""Sizes, depths and failures that a request may bring."""

import sys
from typing import Any

import pytest

from canon import canonicalize
from canon.context import RuleContext
from canon.rules import APPLY


def nested(depth: int, leaf: Any = "x") -> Any:
    value = leaf
    for level in range(depth):
        value = {"properties": value, "type": "object"} if level % 2 else [value]
    return value


@pytest.mark.parametrize("depth", [90, 1000, 100_000])
def test_deep_nesting_anywhere_gives_an_answer(depth: int) -> None:
    deep = nested(depth)
    text = "[" * depth + "]" * depth
    system = {"role": "system", "content": "A. \n" + text + "\n" + "<a>" * depth + "\n" + "</a>" * depth}
    for body in (
        {"messages": deep},
        {"messages": [system, {"role": "user", "content": deep}, {"role": "tool", "content": text}]},
        {
            "messages": [system],
            "tools": [{"function": {"name": "f", "parameters": {"items": deep}}}, {"name": "a"}],
        },
        {"messages": [system], "metadata": deep, "response_format": deep},
        {"input": deep},
        {"prompt": deep},
    ):
        result = canonicalize(body, policy="full")
        assert not [finding for finding in result.findings if finding.cause == "the rule failed"]


LINES = [
    "A.\n",
    "A. \n",
    "\n",
    "\r\n",
    "<a>\n",
    "```\n",
    "| a |\n",
    "key:\n  a\n",
    "{\n",
    "The text is:\n",
    "- a\n",
]
LINES += ["Current time: 10:31\n", "“\n", '"\n', "--- a\n+++ b\n"]
LONG = [
    " ",
    "x",
    "e\u0301",
    '"',
    "“",
    '{"a":',
    "[",
    "0",
    "\ufeff",
    "\ud800",
    "2031-04-05 ",
    "a@b/c.d:",
    "<",
    "<a ",
    "`",
    "|",
]


@pytest.mark.parametrize(
    ("piece", "size"), [*((line, 100_000) for line in LINES), *((one, 2_000_000) for one in LONG)]
)
def test_long_texts_of_anything_take_linear_time(piece: str, size: int) -> None:
    """Anything quadratic would not come back."""
    text = piece * (size // len(piece))
    turns = [{"role": role, "content": text} for role in ("system", "user", "tool")]
    result = canonicalize({"messages": turns}, policy="full")
    assert not [finding for finding in result.findings if finding.cause == "the rule failed"]


def test_a_text_of_ten_megabytes_is_rewritten_as_a_short_one_is() -> None:
    text = "\ufeffA. \r\n\r\n\r\n\r\nB" + "x" * 10_000_000
    body = {"messages": [{"role": "system", "content": text}]}
    made = canonicalize(body, policy="safe").body["messages"][0]["content"]
    assert made == "A.\n\nB" + "x" * 10_000_000


def test_a_rule_that_fails_leaves_the_request_as_it_came(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(context: RuleContext) -> None:
        raise KeyError("a secret of the prompt")

    monkeypatch.setattr(sys.modules["canon.canonicalize"], "APPLY", {**APPLY, "whitespace": fail})
    body = {"messages": [{"role": "system", "content": "A.\r\nB."}]}
    result = canonicalize(body, policy="safe")
    assert result.body is body
    assert not result.edits
    assert [(f.rule, f.cause) for f in result.findings] == [("whitespace", "the rule failed")]
    assert "whitespace" in caplog.text
    assert "secret" not in caplog.text
