"""Whatever a body or a response is, the memory takes it, forgets nothing of it, and raises nothing."""

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import canon

words = st.sampled_from(
    ["user", "assistant", "tool", "system", "function", "text", "tool_use", "tool_result", "function_call",
     "function_call_output", "message", "c1", "{}", '{"n": 1}', "Current time: 2031-03-04 10:11:12", "\ud800", ""]
)  # fmt: skip
keys = st.sampled_from(
    ["role", "content", "type", "text", "tool_calls", "id", "function", "name", "arguments", "tool_call_id",
     "call_id", "output", "input", "tool_use_id", "choices", "message", "delta", "index", "content_block"]
)  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats() | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=6),
    max_leaves=25,
)
turns = st.fixed_dictionaries(
    {"role": words}, optional={"content": values, "tool_calls": values, "tool_call_id": values, "type": words}
)
tops = st.sampled_from(
    ["system", "instructions", "tools", "user", "prompt_cache_key", "metadata", "model", "prompt"]
)
bodies = st.builds(
    lambda key, items, rest: {**rest, key: items},
    st.sampled_from(["messages", "input"]),
    st.lists(turns | values, max_size=6) | values,
    st.dictionaries(tops, values, max_size=4),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(bodies, min_size=1, max_size=3), values, values)
def test_any_bodies_and_any_responses(sent: list[Any], response: Any, extra: Any) -> None:
    memory = canon.ConversationMemory()
    for body in sent:
        for grown in (body, _grown(body, extra)):
            before = copy.deepcopy(grown)
            result = canon.canonicalize(grown, "full", memory, "s")
            assert json.dumps(grown) == json.dumps(before)
            assert json.dumps(canon.canonicalize(grown, "full", memory, "s").body) == json.dumps(result.body)
            memory.record(result.body, response, "s")
            memory.record(grown, [response, extra], "s")


def _grown(body: dict[str, Any], item: Any) -> dict[str, Any]:
    grown = dict(body)
    for key in ("messages", "input"):
        if isinstance(body.get(key), list):
            grown[key] = [
                *body[key],
                {"role": "assistant", "content": item},
                {"role": "user", "content": "and?"},
            ]
    return grown


def test_a_body_too_deep_to_hash_comes_back_with_a_finding() -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    body = {"model": "m", "messages": [{"role": "user", "content": "hi", "extra": deep}]}
    result = canon.canonicalize(body, "full", canon.ConversationMemory())
    assert result.body is body
    assert result.findings
    canon.ConversationMemory().record(body, {"choices": [{"message": {"content": "x"}}]})
