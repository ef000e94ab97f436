"""Requests for property tests: noisy ones of every shape, and any JSON value in any place of one."""

import copy
from typing import Any

from hypothesis import strategies as st

NOISE = [
    "\n",
    "\n\n\n\n",
    " \n",
    "  \n",
    "\r\n",
    "\r",
    "\t",
    " ",
    "\ufeff",
    "    ",
    "\u2028",
    "\x00",
    "\ud800",
]
MARKS = [
    "```",
    "```json\n",
    '"""',
    "<env>",
    "</env>",
    "<p>\n",
    "</p>\n",
    "| a | b |",
    "--- a\n+++ b\n",
    "- ",
    "> ",
    "“",
    "”",
]
WORDS = [
    "You help.",
    "Rule 1: be brief.",
    "e\u0301té",
    "Grüße",
    "文本如下：",
    "The text is:",
    "key:",
    "def f():",
    "note: |+\n",
]
VALUES = [
    "Current time: 2031-04-05T06:07:08Z",
    "Today is Monday, 5 April 2031.",
    "Request-Id: 123e4567-e89b-12d3-a456-426614174000",
    "x-anthropic-billing-header: cch=1f2e3;",
    "Working directory: /tmp/x1y2z3",
    "Iteration 7 of 50",
    "現在の時刻：10時31分",
]
JSON = [
    '{"b": 1.0, "a": [1e400, "\\u00e9"]}',
    '{"a":1,"a":2}',
    "[NaN]",
    '{"b":',
    "[[[[",
    '["x", {"z": -0, "y": 0}]',
    "{}",
]

TEXTS = st.lists(st.sampled_from(NOISE + MARKS + WORDS + VALUES + JSON + ["\n"] * 8), max_size=12).map(
    "".join
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | TEXTS
    | st.sampled_from(["type", "text", "role"])
)
NAMES = [
    "type",
    "text",
    "role",
    "content",
    "name",
    "function",
    "parameters",
    "properties",
    "items",
    "anyOf",
    "tools",
]
NAMES += [
    "input",
    "output",
    "system",
    "messages",
    "arguments",
    "id",
    "call_id",
    "cache_control",
    "$defs",
    "é",
    "",
]
KEYS = st.sampled_from(NAMES)
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def fields(**known: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=known)


def parts(kind: str) -> st.SearchStrategy[Any]:
    part = st.builds(lambda text: {"type": kind, "text": text}, TEXTS)
    image = st.just({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}})
    return TEXTS | st.lists(part | image, max_size=3)


CALL = st.builds(
    lambda arguments: {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": arguments}},
    TEXTS,
)
SYSTEM = st.builds(
    lambda role, content: {"role": role, "content": content},
    st.sampled_from(["system", "developer"]),
    parts("text"),
)
TURN = st.one_of(
    st.builds(lambda content: {"role": "user", "content": content}, parts("text")),
    st.builds(lambda text: {"role": "assistant", "content": text, "reasoning_content": text}, TEXTS),
    st.builds(lambda call: {"role": "assistant", "content": None, "tool_calls": [call]}, CALL),
    st.builds(lambda content: {"role": "tool", "tool_call_id": "call_1", "content": content}, parts("text")),
    SYSTEM,
)
SCHEMA = st.recursive(
    fields(type=st.just("string"), description=TEXTS, enum=st.lists(st.sampled_from(["b", "a"]), max_size=2)),
    lambda inner: st.dictionaries(
        st.sampled_from(
            ["type", "properties", "items", "anyOf", "$defs", "required", "default", "x-z", "description"]
        ),
        inner
        | st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["z", "type", "a"]), inner, max_size=3),
        max_size=5,
    ),
    max_leaves=8,
)
TOOL = st.one_of(
    st.builds(
        lambda name, schema: {"function": {"parameters": schema, "name": name}, "type": "function"},
        st.sampled_from("zmab"),
        SCHEMA,
    ),
    st.builds(lambda name, schema: {"input_schema": schema, "name": name}, st.sampled_from("zmab"), SCHEMA),
    st.just({"type": "web_search"}),
)
TOOLS = st.lists(TOOL, max_size=4)


@st.composite
def _chats(draw: st.DrawFn) -> dict[str, Any]:
    turns = draw(st.lists(SYSTEM, max_size=2)) + draw(st.lists(TURN, max_size=5))
    return {"model": "m", "messages": turns, **draw(fields(tools=TOOLS, seed=ANYTHING, metadata=ANYTHING))}


@st.composite
def _messages(draw: st.DrawFn) -> dict[str, Any]:
    result = st.builds(
        lambda content: {"type": "tool_result", "tool_use_id": "1", "content": content}, parts("text")
    )
    blocks = st.lists(result | st.builds(lambda text: {"type": "text", "text": text}, TEXTS), max_size=3)
    turn = st.builds(
        lambda role, c: {"role": role, "content": c}, st.sampled_from(["user", "assistant"]), blocks | TEXTS
    )
    return {
        "system": draw(parts("text")),
        "messages": draw(st.lists(turn, max_size=4)),
        **draw(fields(tools=TOOLS)),
    }


@st.composite
def _responses(draw: st.DrawFn) -> dict[str, Any]:
    role = st.sampled_from(["user", "developer", "system", "assistant"])
    item = st.one_of(
        st.builds(lambda r, c: {"type": "message", "role": r, "content": c}, role, parts("input_text")),
        st.builds(
            lambda text: {"type": "function_call", "call_id": "1", "name": "f", "arguments": text}, TEXTS
        ),
        st.builds(lambda text: {"type": "function_call_output", "call_id": "1", "output": text}, TEXTS),
    )
    return {
        "input": draw(TEXTS | st.lists(item, max_size=4)),
        **draw(fields(instructions=TEXTS, tools=TOOLS)),
    }


_COMPLETIONS = st.builds(lambda prompt: {"prompt": prompt}, TEXTS | st.lists(TEXTS) | st.lists(st.integers()))
BODIES = st.one_of(_chats(), _chats(), _messages(), _responses(), _COMPLETIONS)


@st.composite
def damaged_bodies(draw: st.DrawFn) -> Any:
    """A body in which something was swapped for any JSON value."""
    body = copy.deepcopy(draw(BODIES))  # some of what strategies give is one object each time
    value: Any = body
    for _ in range(draw(st.integers(0, 6))):
        steps = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not steps:
            break
        step = draw(st.sampled_from(steps))
        if not isinstance(value[step], dict | list) or draw(st.booleans()):
            value[step] = draw(ANYTHING)
            break
        value = value[step]
    return body
