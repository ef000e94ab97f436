"""Streamed answers put together again, as the whole response of the same API would be."""

import json
from collections.abc import Mapping, Sequence
from typing import Any


def assembled(events: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The whole response of these chunks (Chat Completions) or events (Responses, Anthropic); None: it is neither."""
    for event in reversed(events):
        if isinstance(event.get("response"), dict) and event.get("type") == "response.completed":
            return dict(event["response"])
    if any(event.get("type") == "content_block_start" for event in events):
        return {"role": "assistant", "content": _blocks(events)}
    if any("choices" in event for event in events):
        return {"choices": _choices(events)}
    return None


def _choices(chunks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    messages: dict[Any, dict[str, Any]] = {}
    for chunk in chunks:
        for choice in _list(chunk.get("choices")):
            index = choice.get("index", 0)
            if not isinstance(index, int):
                continue
            message = messages.setdefault(index, {"content": [], "tool_calls": {}})
            delta = choice.get("delta")
            if isinstance(delta, dict):
                _add_delta(message, delta)
    return [{"message": _joined(message)} for _, message in sorted(messages.items())]


def _joined(message: dict[str, Any]) -> dict[str, Any]:
    calls = message["tool_calls"].values()
    for call in calls:
        call["function"]["arguments"] = "".join(call["function"]["arguments"])
    return {"content": "".join(message["content"]), "tool_calls": list(calls)}


def _add_delta(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    if isinstance(delta.get("content"), str):
        message["content"].append(delta["content"])
    for part in _list(delta.get("tool_calls")):
        index = part.get("index", 0)
        if not isinstance(index, int):
            continue
        function: Any = {"name": None, "arguments": []}
        call = message["tool_calls"].setdefault(index, {"id": None, "function": function})
        call["id"] = call["id"] or part.get("id")
        function = part.get("function")
        if isinstance(function, dict):
            call["function"]["name"] = call["function"]["name"] or function.get("name")
            if isinstance(function.get("arguments"), str):
                call["function"]["arguments"].append(function["arguments"])


def _blocks(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    blocks: dict[int, dict[str, Any]] = {}
    texts: dict[int, list[str]] = {}
    inputs: dict[int, list[str]] = {}
    for event in events:
        index, start, delta = event.get("index"), event.get("content_block"), event.get("delta")
        if not isinstance(index, int):
            continue
        if event.get("type") == "content_block_start" and isinstance(start, dict):
            blocks[index] = dict(start)
        elif event.get("type") == "content_block_delta" and isinstance(delta, dict) and index in blocks:
            if isinstance(delta.get("text"), str):
                texts.setdefault(index, []).append(delta["text"])
            elif isinstance(delta.get("partial_json"), str):
                inputs.setdefault(index, []).append(delta["partial_json"])
    for index, pieces in texts.items():
        blocks[index]["text"] = f"{blocks[index].get('text', '')}{''.join(pieces)}"
    for index, pieces in inputs.items():
        blocks[index]["input"] = _loaded("".join(pieces) or "{}")
    return [block for _, block in sorted(blocks.items())]


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _list(values: Any) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []
