"""Whether a chat's token ids made here are those that SGLang makes of it: asked of SGLang itself, when it starts.

Ids take the place of SGLang's rendering only in chats of kinds that were proved equal. All others go as messages, and
SGLang renders them. Either way its own parsers read the answer.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import orjson

from engine_adapters.reuse.reading import part

log = logging.getLogger("kvgate.sglang")

# The ids of a chat body as they are made here, special tokens in content acting as in SGLang; None: it is refused.
# CPU-bound; called on a thread.
Render: TypeAlias = Callable[[Mapping[str, Any]], Sequence[int] | None]
# The same as SGLang makes them; None: it refuses the body, or cannot be asked. Raises EngineError where it has gone.
Asked: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[Sequence[int] | None]]

_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "look_up", "arguments": '{"place": "Zürich", "days": 2, "exact": 1.50, "far": 1e2}'},
}
_SECOND = {
    "id": "call_2",
    "type": "function",
    "function": {"name": "add", "arguments": '{"b": [1, {"c": null}], "a": true}'},
}
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": 'Weather, "now" & <later>',
            "parameters": {
                "type": "object",
                "properties": {"place": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
                "required": ["place"],
            },
        },
    },
    {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}},
]


def _said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


_USER = _said("user", "What is the weather in Zürich?")
_SYSTEM = _said("system", "You are brief.\n\nAnswer in one line.")
_TURNS = [_SYSTEM, _USER, _said("assistant", "Rain."), _said("user", "And tomorrow?")]
_CALLED = [
    _SYSTEM,
    _USER,
    _said("assistant", None, tool_calls=[_CALL]),
    _said("tool", '{"sky": "grey", "t": 1.50}', tool_call_id="call_1"),
]
_BOTH = [
    _USER,
    _said("assistant", "I look.", tool_calls=[_CALL, _SECOND]),
    _said("tool", "grey", tool_call_id="call_1"),
    _said("tool", "3", tool_call_id="call_2"),
    _said("assistant", "Grey, and 3."),
    _said("user", "Thanks"),
]
_UNICODE = "e\u0301 \u00e9 \u4f60\u597d \U0001f469\u200d\U0001f4bb \u0627\u0644 \u2028 \t \r\n  end "
_SPECIAL = "<|im_start|>system\nx<|im_end|> <|endoftext|> <s> </s> [INST] <|eot_id|> <tool_call>"

# By kind; a body's kinds are said by `kinds_of`.
PROBES: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "text": (
        {"messages": [_USER]},
        {"messages": [_SYSTEM, _USER]},
        {"messages": _TURNS},
        {"messages": [*_TURNS, _said("assistant", ""), _said("user", "")]},
        {"messages": [_USER, _SYSTEM, _said("user", "Go on")]},
        {"messages": [_said("user", _UNICODE), _said("assistant", _UNICODE), _said("user", _UNICODE)]},
        {"messages": [_said("system", "  \n"), _said("user", " <b>&amp;</b> {{ x }} {% y %} ")]},
        {"messages": [_said("user", _SPECIAL), _said("assistant", "<think>a</think>b"), _USER]},
    ),
    "parts": (
        {"messages": [_said("user", [{"type": "text", "text": "one"}])]},
        {"messages": [_said("user", [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}])]},
        {"messages": [_said("system", [{"type": "text", "text": "Brief."}]), _USER]},
        {
            "messages": [
                *_CALLED[:-1],
                _said("tool", [{"type": "text", "text": "grey"}], tool_call_id="call_1"),
            ]
        },
    ),
    "tools": (
        {"messages": [_USER], "tools": _TOOLS},
        {"messages": [_SYSTEM, _USER], "tools": _TOOLS[:1], "tool_choice": "required"},
        {"messages": _CALLED, "tools": _TOOLS},
        {"messages": _BOTH, "tools": _TOOLS, "tool_choice": "none"},
        {"messages": _BOTH},
        {"messages": [*_BOTH[:2], _BOTH[3], _BOTH[2], *_BOTH[4:]], "tools": _TOOLS},
    ),
    "continued": ({"messages": [_USER, _said("assistant", "It is")], "continue_final_message": True},),
    "variables": tuple(
        {"messages": messages, "chat_template_kwargs": {"enable_thinking": thinks}}
        for messages in ([_USER], _TURNS)
        for thinks in (True, False)
    ),
}

_MESSAGE_KEYS = frozenset({"role", "content", "tool_calls", "tool_call_id"})
_ROLES = frozenset({"system", "user", "assistant", "tool"})


def kinds_of(body: Mapping[str, Any]) -> frozenset[str]:
    """What has to be proved for this chat; with "other" in it, what no probe has."""
    messages = [message for message in body.get("messages") or () if isinstance(message, Mapping)]
    variables = body.get("chat_template_kwargs") or {}
    kinds = {"text"}
    if any(isinstance(message.get("content"), list) for message in messages):
        kinds.add("parts")
    if body.get("tools") or any(message.get("tool_calls") or _is_result(message) for message in messages):
        kinds.add("tools")
    if body.get("continue_final_message"):
        kinds.add("continued")
    if variables:
        kinds.add("variables")
    if body.get("reasoning_effort") is not None or set(variables) - {"enable_thinking"}:
        kinds.add("other")
    # SGLang makes a question of an answer at the end.
    answered = bool(messages) and messages[-1].get("role") == "assistant" and "continued" not in kinds
    if answered or any(_is_other(message) for message in messages):
        kinds.add("other")
    return frozenset(kinds)


def _is_result(message: Mapping[str, Any]) -> bool:
    return message.get("role") == "tool"


def _is_other(message: Mapping[str, Any]) -> bool:
    said = {key for key, value in message.items() if value is not None}
    calls = message.get("tool_calls") or ()
    if said - _MESSAGE_KEYS or message.get("role") not in _ROLES or not (calls or "content" in said):
        return True
    return not all(_is_object(part(call, "function").get("arguments")) for call in calls)


def _is_object(arguments: object) -> bool:
    try:
        return isinstance(arguments, str) and isinstance(orjson.loads(arguments), dict)
    except orjson.JSONDecodeError:
        return False


@dataclass(frozen=True, slots=True)
class Proof:
    """What was found out when the engine was registered."""

    proved: tuple[str, ...] = ()  # kinds whose ids were equal in every probe
    differs: tuple[str, ...] = ()  # the first probe of each other kind that was not, in words

    def covers(self, body: Mapping[str, Any]) -> bool:
        """Whether this chat's ids may take the place of SGLang's rendering."""
        return kinds_of(body) <= set(self.proved)


async def prove(asked: Asked, render: Render) -> Proof:
    """Render all probes there and here, and compare. What cannot be asked is not proved."""
    proved, differs = [], []
    for kind, probes in PROBES.items():
        difference = await first_difference(kind, probes, asked, render)
        if difference is None:
            proved.append(kind)
        else:
            differs.append(difference)
    return Proof(tuple(proved), tuple(differs))


async def first_difference(
    kind: str, probes: Sequence[Mapping[str, Any]], asked: Asked, render: Render
) -> str | None:
    """In words, the first probe whose ids are not equal; None: all of them are."""
    taken = 0
    for number, body in enumerate(probes):
        theirs, ours = await asyncio.gather(asked(body), asyncio.to_thread(render, body))
        if theirs is None and ours is None:
            continue  # both refuse it
        if theirs is None or ours is None:
            return f"{kind}: probe {number} is refused {'there' if theirs is None else 'here'} alone"
        if list(theirs) != list(ours):
            same = next((at for at, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b), None)
            at = min(len(theirs), len(ours)) if same is None else same
            return (
                f"{kind}: probe {number} differs from token {at} on ({len(theirs)} there, {len(ours)} here)"
            )
        taken += 1
    return None if taken else f"{kind}: every probe is refused"


def say(proof: Proof) -> None:
    """What was found, once, in the log."""
    if proof.proved:
        log.info("chats go to SGLang as token ids, proved equal to its own: %s", ", ".join(proof.proved))
    for difference in proof.differs:
        log.warning(
            "SGLang renders these chats itself, since our token ids are not the same: %s. "
            "What is predicted for them may differ, and special tokens in their content are refused.",
            difference,
        )
