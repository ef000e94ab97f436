"""Tools converge; what their order means stays."""

import json
from typing import Any

import pytest

from canon import ConversationMemory, canonicalize
from canon.policy import Policy


def tool(name: str, **schema: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": name, "parameters": schema}}


def body(*tools: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "q"}], "tools": list(tools), **more}


def spelled(value: Any) -> str:
    return json.dumps(value)


A = {
    "required": ["z"],
    "additionalProperties": False,
    "properties": {
        "z": {"pattern": "^x", "type": "string", "enum": ["b", "a"]},
        "type": {"description": "d", "type": "string"},
        "properties": {
            "properties": {"items": {"x-y": 1, "type": "string"}, "enum": {"type": "string"}},
            "type": "object",
        },
    },
    "type": "object",
    "$defs": {"q": {"anyOf": [{"title": "t", "type": "null"}, {"$ref": "#/x", "type": "string"}]}, "b": True},
}


def test_keywords_get_one_order_and_names_keep_theirs() -> None:
    made = canonicalize(body(tool("f", **A)), policy="safe").body["tools"][0]["function"]["parameters"]
    assert made == A
    assert list(made) == ["type", "properties", "required", "additionalProperties", "$defs"]
    assert list(made["properties"]) == ["z", "type", "properties"]
    assert list(made["properties"]["z"]) == ["type", "enum", "pattern"]
    assert list(made["properties"]["properties"]["properties"]) == ["items", "enum"]
    assert list(made["properties"]["properties"]["properties"]["items"]) == ["type", "x-y"]
    assert list(made["$defs"]) == ["q", "b"]
    assert [list(schema) for schema in made["$defs"]["q"]["anyOf"]] == [["type", "title"], ["$ref", "type"]]
    assert made["properties"]["z"]["enum"] == ["b", "a"]


def test_all_forms_of_tools_get_their_fields_in_one_order() -> None:
    schema = {"properties": {}, "type": "object"}
    forms = [
        {"function": {"parameters": schema, "strict": True, "name": "f"}, "type": "function"},
        {"parameters": schema, "name": "f", "type": "function", "strict": None},
        {"input_schema": schema, "description": "d", "name": "f"},
    ]
    for form in forms:
        shuffled = dict(reversed(form.items()))
        left, right = (canonicalize(body(each), policy="safe").body["tools"] for each in (form, shuffled))
        assert spelled(left) == spelled(right)
        assert left == [form]
    old = canonicalize(
        {"messages": [], "functions": [{"parameters": schema, "name": "f"}]}, policy="safe"
    ).body
    assert spelled(old["functions"]) == '[{"name": "f", "parameters": {"type": "object", "properties": {}}}]'


@pytest.mark.parametrize("keyword", ["default", "const", "examples", "enum", "example", "x-data"])
def test_values_that_are_data_are_not_touched(keyword: str) -> None:
    data = {"type": 1, "properties": {"type": 2, "items": {"z": 1, "type": 3}}, "a": [{"z": 1, "type": 2}]}
    value = [data] if keyword in ("examples", "enum") else data
    made = canonicalize(body(tool("f", type="object", **{keyword: value})), policy="full").body
    assert spelled(made["tools"][0]["function"]["parameters"][keyword]) == spelled(value)


def test_response_format_and_tool_choice_are_left_as_they_are() -> None:
    schema = {"properties": {"z": {"x": 1, "type": "string"}, "a": {}}, "type": "object"}
    request = body(
        tool("f"),
        response_format={"json_schema": {"schema": schema, "name": "r"}, "type": "json_schema"},
        tool_choice={"type": "allowed_tools", "tools": [{"name": "b", "type": "x"}, {"name": "a"}]},
        text={"format": {"schema": schema, "type": "json_schema"}},
    )
    assert spelled(canonicalize(request, policy="full").body) == spelled(request)


def test_a_schema_past_the_depth_limit_is_left_alone_and_reported() -> None:
    schema: Any = {"description": "x", "type": "string"}
    for _ in range(5000):
        schema = {"items": schema, "type": "array"}
    request = body(tool("deep", **schema), tool("a", properties={}, type="object"))
    result = canonicalize(request, policy="safe")
    assert [(f.rule, f.path) for f in result.findings if f.rule == "schema_keywords"] == [
        ("schema_keywords", "tools[deep]")
    ]
    assert result.body["tools"][0] is request["tools"][0]
    assert list(result.body["tools"][1]["function"]["parameters"]) == ["type", "properties"]


def names(tools: list[Any]) -> list[Any]:
    return [each.get("name") or each.get("function", {}).get("name") or each["type"] for each in tools]


def test_tools_are_sorted_by_name_under_full_and_reported_under_safe() -> None:
    request = body(tool("z"), {"type": "web_search"}, {"name": "a", "input_schema": {}}, tool("m"))
    made = canonicalize(request, policy="full").body
    assert names(made["tools"]) == ["a", "m", "web_search", "z"]
    safe = canonicalize(request, policy="safe")
    assert names(safe.body["tools"]) == names(request["tools"])
    assert any(f.rule == "tool_order" and f.path == "tools" for f in safe.findings)


@pytest.mark.parametrize(
    "tools",
    [
        [tool("b"), tool("b"), tool("a")],
        [tool("b"), 1, tool("a")],
        [tool("b"), {}, tool("a")],
        [
            {"name": "b", "input_schema": {}},
            {"name": "a", "input_schema": {}, "cache_control": {"type": "ephemeral"}},
        ],
    ],
)
def test_a_list_whose_order_may_be_meant_is_left_alone(tools: list[Any]) -> None:
    assert spelled(canonicalize(body(*tools), policy="full").body["tools"]) == spelled(tools)


def test_a_tool_that_joins_a_conversation_goes_behind_those_sent() -> None:
    memory = ConversationMemory()
    first = body(tool("m"), {"type": "web_search"}, tool("z"))
    canonicalize(first, policy="full", memory=memory)
    later = {**body(tool("a"), tool("z"), {"type": "web_search"}, tool("m"))}
    later["messages"] = [
        *first["messages"],
        {"role": "assistant", "content": "x"},
        {"role": "user", "content": "r"},
    ]
    made = canonicalize(later, policy="full", memory=memory).body
    assert names(made["tools"]) == ["m", "web_search", "z", "a"]


def test_the_rules_of_tools_are_switched_one_by_one() -> None:
    policy = Policy.named("full").with_rules({"tool_order": "off", "schema_keywords": "report"})
    request = body(tool("z", properties={}, type="object"), tool("a"))
    result = canonicalize(request, policy=policy)
    assert result.body is request
    assert [(f.rule, f.path) for f in result.findings] == [("schema_keywords", "tools[z]")]


PINS = Policy.named("full").with_rules({"property_order": "act"})


def properties(request: dict[str, Any], memory: ConversationMemory | None) -> list[str]:
    made = canonicalize(request, policy=PINS, memory=memory, scope="s").body["tools"][0]
    return list(made["function"]["parameters"]["properties"])


def test_properties_go_out_in_the_order_first_seen_if_that_is_asked_for() -> None:
    memory = ConversationMemory()
    inner = {"type": "object", "properties": {"q": {}, "p": {}}}
    first = body(tool("f", type="object", properties={"z": inner, "a": {}}, required=["z"]))
    swapped = {"type": "object", "properties": {"p": {}, "q": {}}}
    second = body(tool("f", type="object", properties={"a": {}, "z": swapped}, required=["z"]))
    assert properties(first, memory) == ["z", "a"]
    assert properties(second, memory) == ["z", "a"]
    made = canonicalize(second, policy=PINS, memory=memory, scope="s").body
    assert spelled(made["tools"]) == spelled(first["tools"])
    assert properties(second, None) == ["a", "z"]
    assert spelled(canonicalize(second, policy="full", memory=memory, scope="s").body) == spelled(second)
    assert properties(body(tool("g", type="object", properties={"a": {}, "z": {}})), memory) == ["a", "z"]
