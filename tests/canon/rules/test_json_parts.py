"""JSON parts converge without a loss, and what they must not touch stays."""

import json
from typing import Any

import pytest

from canon import canonicalize
from canon.results import CanonResult


def with_result(text: Any, name: str = "look_up", arguments: Any = '{"b": 1, "a": 2}') -> dict[str, Any]:
    call = {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return {
        "messages": [
            {"role": "user", "content": '{"b": 1, "a": 2}'},
            {"role": "assistant", "content": '{"b": 1, "a": 2}', "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": text},
        ]
    }


def run(body: dict[str, Any], policy: str = "full") -> CanonResult:
    return canonicalize(body, policy=policy)


def test_a_tool_result_gets_one_form_and_nothing_else_does() -> None:
    body = with_result('{"b": [1.10, 1e400, -0], "a": "\\u00e9é"}\n')
    made = run(body).body
    assert made["messages"][2]["content"] == '{"a":"éé","b":[1.10,1e400,-0]}'
    assert made["messages"][:2] == body["messages"][:2]


def test_every_form_of_tool_result_is_known() -> None:
    text, form = '{"b": 1, "a": 2}', '{"a":2,"b":1}'
    block = {"type": "tool_result", "tool_use_id": "1", "content": text}
    parts = {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": text}]}
    messages = run({"messages": [{"role": "user", "content": [block, parts]}]}).body["messages"]
    assert messages[0]["content"][0]["content"] == form
    assert messages[0]["content"][1]["content"][0]["text"] == form
    items = run({"input": [{"type": "function_call_output", "call_id": "1", "output": text}]}).body["input"]
    assert items[0]["output"] == form
    content = run(with_result([{"type": "text", "text": text}])).body["messages"][2]["content"]
    assert content == [{"type": "text", "text": form}]


@pytest.mark.parametrize(
    "text",
    ['{"a":1,"b":2,"a":3}', '{"b": NaN, "a": 1}', '{"b": -Infinity}', '{"b": ' + "[" * 300 + "]" * 300 + "}"],
)
def test_what_might_be_lost_is_left_alone_and_reported(text: str) -> None:
    result = run(with_result(text))
    assert not result.changed
    assert [(f.rule, f.path) for f in result.findings if f.rule == "json_parts"] == [
        ("json_parts", "messages[2].content")
    ]


@pytest.mark.parametrize(
    "text", ["[note] see {x}", '"b"', "1 ", "{}", "[]", "", "{'b': 1}", '{"a":1}\n{"a":2}', "{ x }"]
)
def test_what_is_not_json_or_is_in_form_is_left_alone(text: str) -> None:
    assert run(with_result(text)).body["messages"][2]["content"] == text


FILE = '{\n  "name": "x",\n  "deps": {}\n}\n'


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read_file", "{}"),
        ("Bash", "{}"),
        ("get", '{"path": "src/package.json"}'),
        ("get", {"of": "package.json"}),
    ],
)
def test_what_a_tool_read_from_a_file_stays_to_the_letter(name: str, arguments: Any) -> None:
    body = with_result(FILE, name, arguments)
    assert run(body).body is body
    use = {"type": "tool_use", "id": "1", "name": name, "input": arguments}
    result = {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": FILE}]}
    body = {"messages": [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]}
    assert run(body).body is body
    call = {"type": "function_call", "call_id": "1", "name": name, "arguments": arguments}
    body = {"input": [call, {"type": "function_call_output", "call_id": "1", "output": FILE}]}
    assert run(body).body is body


def system(*texts: str) -> list[str]:
    parts = [{"type": "text", "text": text} for text in texts]
    made = run({"messages": [{"role": "system", "content": parts}, {"role": "user", "content": "q"}]})
    return [part["text"] for part in made.body["messages"][0]["content"]]


def test_a_system_part_that_is_data_gets_one_form() -> None:
    assert system("You help.", "Customer record:", '{"id": 9, "age": 1.0}')[2] == '{"age":1.0,"id":9}'


@pytest.mark.parametrize(
    ("before", "text"),
    [
        ("Reply with JSON exactly in this form:", '{"b": 1, "a": 2}'),
        ("Antworte im Format:", '{"b": 1, "a": 2}'),
        ("You help.", '{"reasoning": "...", "answer": "..."}'),
        ("You help.", '{"name": "<name>", "age": "<age>"}'),
        ("You help.", '{"type": "object", "properties": {"z": {}, "a": {}}}'),
        ("You help.", '{"task": "x", "examples": [{"out": {"z": 1, "a": 2}}]}'),
    ],
)
def test_forms_examples_and_schemas_keep_their_order(before: str, text: str) -> None:
    assert system(before, text) == [before, text]


def test_a_part_that_the_next_one_calls_a_form_stays() -> None:
    texts = ['{"b": 1, "a": 2}', "Write your reply in the form shown above."]
    assert system(*texts) == texts


def test_under_safe_it_is_only_reported() -> None:
    body = with_result('{"b": 1, "a": 2}')
    result = run(body, policy="safe")
    assert result.body is body
    assert any(finding.rule == "json_parts" for finding in result.findings)
    assert json.loads(run(body).body["messages"][2]["content"]) == {"b": 1, "a": 2}


def test_a_schema_that_a_tool_answered_keeps_the_order_of_its_properties() -> None:
    body = with_result('{"type": "object", "properties": {"z": {}, "a": {}}}')
    assert run(body).body is body
    feature = run(with_result('{"type": "Feature", "properties": {"z": 1, "a": 2}}')).body
    assert feature["messages"][2]["content"] == '{"properties":{"a":2,"z":1},"type":"Feature"}'
