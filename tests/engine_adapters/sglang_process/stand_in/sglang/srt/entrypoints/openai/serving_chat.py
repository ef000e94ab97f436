"""Renders a chat to its characters, and answers with what it was asked."""

import json
import types
from collections.abc import AsyncIterator
from typing import Any

_DETAILS = {"device": 2, "host": 1}


class OpenAIServingChat:
    def __init__(self, manager: Any, _: Any) -> None:
        self._manager = manager

    def _convert_to_internal_request(self, asked: Any, _: Any) -> tuple[Any, Any]:
        fields = asked.fields
        if any(key in fields for key in self._manager.refused):
            raise ValueError("refused by the template")
        ids = list(json.dumps([fields["messages"], fields.get("tools")]).encode())
        if any(key in fields for key in self._manager.drifts):
            ids.append(0)
        return types.SimpleNamespace(input_ids=ids), asked

    async def handle_request(self, asked: Any, _: Any) -> Any:
        first = asked.fields["messages"][0].get("content")
        if first == "refuse":
            said = {"object": "error", "message": "not like this", "code": 400}
            return types.SimpleNamespace(status_code=400, body=json.dumps(said).encode())
        return types.SimpleNamespace(body_iterator=self._answer(asked.fields, first))

    async def _answer(self, fields: dict[str, Any], first: str) -> AsyncIterator[str]:
        while first == "forever" and fields["rid"] not in self._manager.aborted:
            yield _chunk({"content": "x"})
            await self._manager.breathe()
        yield _chunk({"role": "assistant", "reasoning_content": "hm"})
        yield _chunk({"content": json.dumps(fields, sort_keys=True)}, logprobs=bool(fields.get("logprobs")))
        called = fields.get("tool_choice") == "required"
        if called:
            yield _chunk({"tool_calls": [_call("call_7", "look", "")]})
            yield _chunk({"tool_calls": [_call(None, None, '{"q": 1}')]})
        if first == "break":
            yield _line({"error": {"message": "broken inside", "code": 500}})
            return
        yield _chunk({}, finish="tool_calls" if called else "stop", matched=None if called else "\n")
        if first == "cut":
            return
        yield _line({"choices": [], "sglext": {"cached_tokens_details": _DETAILS}})
        usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 3}}
        yield _line({"choices": [], "usage": usage})
        yield "data: [DONE]\n\n"


def _call(number: str | None, name: str | None, arguments: str) -> dict[str, Any]:
    return {"index": 0, "id": number, "function": {"name": name, "arguments": arguments}}


def _chunk(
    delta: dict[str, Any], finish: str | None = None, matched: str | None = None, *, logprobs: bool = False
) -> str:
    one = {"token": "é", "bytes": [195, 169], "logprob": -0.5}
    content = {"content": [{**one, "top_logprobs": [one]}]} if logprobs else None
    choice = {
        "index": 0, "delta": delta, "finish_reason": finish, "matched_stop": matched, "logprobs": content,
    }  # fmt: skip
    return _line({"choices": [choice], "usage": None})


def _line(said: dict[str, Any]) -> str:
    return f"data: {json.dumps(said)}\n\n"
