"""JSON in system texts is reported; with a memory or a switch it converges; forms and programs stay."""

from typing import Any

import pytest

from canon import ConversationMemory, canonicalize
from canon.policy import Policy

RECORD = '{"id": 9007199254740993, "price": 1.10, "tags": ["b", "a"]}'
OTHER = '{\n  "price": 1.10,\n  "tags": ["b", "a"],\n  "id": 9007199254740993\n}'
FORM = '{"id":9007199254740993,"price":1.10,"tags":["b","a"]}'
ACTS = Policy.named("full").with_rules({"json_in_text": "act"})


def chat(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "system", "content": text}, {"role": "user", "content": text}]}


def text(body: dict[str, Any]) -> str:
    content = body["messages"][0]["content"]
    assert isinstance(content, str)
    return content


AROUND = [
    "Record:\n```json\n{}\n```\nBe brief.",
    "Record:\n\n```\n{}\n```\nBe brief.",
    "Record: {}\nBe brief.",
    "Be brief.\n{}\nBe kind.",
    "- Customer: {}\n- Be brief.",
    "<record>{}</record>\nBe brief.",
    "<record>\n{}\n</record>\nBe brief.",
]


@pytest.mark.parametrize("around", AROUND)
def test_it_is_reported_and_converges_if_the_rule_may_act(around: str) -> None:
    bodies = [chat(around.replace("{}", each)) for each in (RECORD, OTHER)]
    for body in bodies:
        result = canonicalize(body, policy="full")
        assert result.body["messages"][0] == body["messages"][0]
        assert [f.cause for f in result.findings if f.rule == "json_in_text"] == [
            "JSON in text in no fixed form"
        ]
        acted = canonicalize(body, policy=ACTS).body
        assert text(acted) == around.replace("{}", FORM)
        assert acted["messages"][1] == body["messages"][1]


@pytest.mark.parametrize("around", AROUND)
def test_with_a_memory_an_equal_value_goes_out_as_it_was_first_seen(around: str) -> None:
    memory = ConversationMemory()
    first, second = (chat(around.replace("{}", each)) for each in (RECORD, OTHER))
    assert text(canonicalize(first, policy="full", memory=memory, scope="s").body) == text(first)
    assert text(canonicalize(second, policy="full", memory=memory, scope="s").body) == text(first)
    assert text(canonicalize(second, policy="full", memory=memory, scope="other").body) == text(second)


@pytest.mark.parametrize(
    "written",
    [
        'Reply with JSON exactly in this form:\n{"reasoning": "...", "answer": "..."}',
        'Write your answer like this:\n```json\n{"b": 1, "a": 2}\n```',
        "Ausgabe im Format:\n\n" + RECORD,
        'Output: {"b": 1, "a": 2}',
        'The text is:\n{"b": 1, "a": 2}',
        'Be brief.\n```python\n{"b": 1, "a": 2}\n```',
        'Be brief.\n```json\n{"b": 1, "a": 2}\nand more\n```',
        'x = 1;\n{"b": 1, "a": 2}',
        '> {"b": 1, "a": 2}',
        'Be brief.\n{"b": 1, "a": 2} is a record.',
        'Say {"b": 1, "a": 2}',
        'Record:\n{"a": 1, "b": 2, "a": 3}',
        'Record:\n{"b": NaN, "a": 2}',
        'Record:\n{"b": {"d": 1, "c": 2}, oops}',
        'Schema:\n{"type": "object", "properties": {"b": {}, "a": {}}}',
        "Record:\n" + FORM,
    ],
)
def test_forms_programs_and_what_is_not_json_stay(written: str) -> None:
    result = canonicalize(chat(written), policy=ACTS, memory=ConversationMemory())
    assert text(result.body) == written
    assert not [finding for finding in result.findings if finding.rule == "json_in_text"]


def test_findings_of_one_text_are_bounded() -> None:
    body = chat("Records.\n" + f"Record: {RECORD}\n" * 100 + "End.")
    result = canonicalize(body, policy="full")
    assert len([finding for finding in result.findings if finding.rule == "json_in_text"]) == 10
    assert text(canonicalize(body, policy=ACTS).body) == "Records.\n" + f"Record: {FORM}\n" * 100 + "End."
