"""Newlines, unicode and whitespace: what goes, and what stays because it means something."""

import unicodedata
from typing import Any

import pytest

from canon import canonicalize
from canon.policy import Policy


def system(text: str) -> str:
    return canonicalize(chat(text), policy="safe").body["messages"][0]["content"]


def chat(*system_parts: str) -> dict[str, Any]:
    content: Any = [{"type": "text", "text": part} for part in system_parts]
    return {
        "messages": [
            {"role": "system", "content": content if len(system_parts) > 1 else system_parts[0]},
            {"role": "user", "content": "q \r\n\n\n"},
        ]
    }


def nfd(text: str) -> str:
    return unicodedata.normalize("NFD", text)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("A.\r\nB.\rC.\n", "A.\nB.\nC."),
        ("\n\nA.\n\n", "A."),
        ("  \n\nA.", "A."),
        ("A. \nB.\t\nC.", "A.\nB.\nC."),
        ("A.\n\n\n\nB.\n \n\nC.", "A.\n\nB.\n\nC."),
        ("A.\n\n```\nx\n```\n\n\n\nB.\n", "A.\n\n```\nx\n```\n\nB."),
        ("<env>\nDate: x\n</env>\n", "<env>\nDate: x\n</env>"),
        ("- a\n  - b \n  - c\n", "- a\n  - b\n  - c"),
        ("- a is \n  long\n  and longer\n", "- a is\n  long\n  and longer"),
        ('Facts.\n{"a": 1}\n', 'Facts.\n{"a": 1}'),
        ("Be brief, for example:\nQ: x\nA: y\n\n", "Be brief, for example:\nQ: x\nA: y"),
        ("Facts:\n| a |\n\n\n\nB.\n", "Facts:\n| a |\n\nB."),
        ("\ufeffA.", "A."),
        (nfd("Grüße an José, l'été."), "Grüße an José, l'été."),
        ("\ufeff\r\nA.  ", "A."),
        ("あなたは案内係です。\r\n\r\n\r\n短く。\n", "あなたは案内係です。\n\n短く。"),
    ],
)
def test_what_means_nothing_goes(before: str, after: str) -> None:
    assert system(before) == after


@pytest.mark.parametrize(
    "text",
    [
        "A line  \nwith a break.",
        "A line   \nwith a break.",
        "A.\n   \nB.",
        "Use:\n```\nx \n\n\n\ny\r\n```",
        "Use:\n```\nnever closed \n\n\n",
        "Config:\n\nservices:\n  web: 1 \n",
        "note: |+\n  keep  \n\n\n",
        "Use:\nversion: 1\nname: x\n",
        "---\ntitle: x\n---\n" + "tone: warm\nlang: de\n\n",
        "| a | b | \n|---|---|\n| 1 | 2 | ",
        "--- a\n+++ b\n@@ -1 +1 @@\n-x \n+y\n \n",
        "def f():\n    return 1\n\n\ndef g():\n    return 2\n",
        "The text is:\n\n\nDear Bob, \n\n\nBye\n\n",
        "> quoted \n> text",
        "“Quoted \n\n\ntext” is quoted.",
        "<p>\nx \n\n\ny\n</p>",
        "\ufeff",
        "\ufeff\ufeffA.",
        "\n\ufeffA.",
        " \n\n ",
        "",
        "   indented first line",
        "x² + ︰ ½ ﬁ \u212b \ufa10",
        nfd("Open `é.txt`, /home/josé/x, C:\\é, café.txt and \"é\" “é” «é» 'é' é_x é=1 #é né.fr"),
        nfd("Été 2030.txt"),
        nfd("Lis ~/Été 2030/notes"),
        nfd("C:\\Été 2030"),
        "no\u00a0break\u2003spaces\u200b \u3000\x0b\x0c stay",
    ],
)
def test_what_means_something_stays(text: str) -> None:
    assert canonicalize(chat(text), policy="safe").edits == ()
    assert system(text) == text


def test_inner_ends_of_parts_stay_as_they_are_joined_by_templates() -> None:
    body = canonicalize(chat("\n\nA. \n", "\n\n\nB. ", "\ufeffC.\n"), policy="safe").body
    assert [part["text"] for part in body["messages"][0]["content"]] == ["A.\n", "\n\n\nB. ", "\ufeffC."]


def test_other_texts_are_never_edited() -> None:
    noisy = "\ufeffA. \r\n\n\n\nB.\n"
    roles = ("user", "assistant", "tool", "system", "developer")
    body = {"messages": [{"role": "user", "content": noisy}, *({"role": r, "content": noisy} for r in roles)]}
    assert canonicalize(body, policy="safe").body is body
    for raw in ({"prompt": noisy}, {"prompt": [noisy]}, {"prompt": [1, 2]}, {"input": noisy}):
        assert canonicalize(raw, policy="full").body is raw


def test_every_kind_of_body_has_its_system_text_rewritten() -> None:
    for body, path in (
        ({"system": "A. \nB.\n", "messages": []}, ("system",)),
        (
            {"system": [{"type": "text", "text": "A. \nB.\n", "cache_control": {}}], "messages": []},
            ("system", 0, "text"),
        ),
        ({"instructions": "A. \nB.\n", "input": "x "}, ("instructions",)),
        ({"input": [{"role": "developer", "content": "A. \nB.\n"}]}, ("input", 0, "content")),
    ):
        value: Any = canonicalize(body, policy="safe").body
        for step in path:
            value = value[step]
        assert value == "A.\nB."


def test_each_rule_is_switched_by_itself_and_then_says_what_it_would_do() -> None:
    policy = Policy.named("safe").with_rules({"whitespace": "report", "newlines": "off"})
    result = canonicalize(chat("\ufeffA. \nB.\r\nC."), policy=policy)
    assert result.body["messages"][0]["content"] == "A. \nB.\r\nC."
    assert [edit.rule for edit in result.edits] == ["unicode"]
    (finding,) = [finding for finding in result.findings if finding.rule == "whitespace"]
    assert (finding.path, finding.offset) == ("messages[0].content", 2)
    assert finding.values == (" \nB.\r\nC.", "\nB.\r\nC.")


def test_under_observe_edits_are_told_and_nothing_changes() -> None:
    body = chat("A. \nB.")
    result = canonicalize(body, policy="observe")
    assert result.body is body
    assert not result.changed
    assert [edit.after for edit in result.edits] == ["A.\nB."]
