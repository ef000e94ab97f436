"""The before and after of each rule on the documentation's page are what the rules do."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from canon import canonicalize
from canon.policy import RULES

_PAGE = (Path(__file__).parents[2] / "docs" / "canon.md").read_text()


def example(rule: str) -> tuple[str, str]:
    section = _PAGE.split(f"\n### {rule} ")[1].split("\n### ")[0]
    shown = re.search(r"```\nbefore +(.*)\nafter +(.*)\n", section)
    assert shown
    return shown[1], shown[2]


@pytest.mark.parametrize("rule", ["newlines", "unicode", "whitespace"])
def test_rules_for_prose(rule: str) -> None:
    before, after = map(json.loads, example(rule))
    result = canonicalize({"messages": [{"role": "system", "content": before}]}, policy="safe")
    assert result.body["messages"][0]["content"] == after
    assert {edit.rule for edit in result.edits} == {rule}


def test_schema_keywords() -> None:
    before, after = example("schema_keywords")
    body: Any = {"messages": [], "tools": [json.loads(before)]}
    assert json.dumps(canonicalize(body, policy="safe").body["tools"][0]) == after


def test_json_parts() -> None:
    before, after = example("json_parts")
    made = canonicalize(
        {"messages": [{"role": "tool", "tool_call_id": "1", "content": before}]}, policy="full"
    )
    assert made.body["messages"][0]["content"] == after


def test_every_rule_is_on_the_page() -> None:
    assert [rule for rule in RULES if rule not in _PAGE] == []
