"""What a model produced, in one form for all APIs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from canon.errors import JsonRefusedError
from canon.lossless import canonical
from canon.memory.answer_stream import assembled
from canon.memory.same_json import same_json, same_value


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call. `arguments` is JSON text, or an object where the API has it so."""

    id: str
    name: str
    arguments: Any

    def same_as(self, other: "Call") -> bool:
        """Whether both call the same tool with the same arguments, however they are written; ids may differ."""
        return self.name == other.name and self._same_arguments(other.arguments)

    def _same_arguments(self, other: Any) -> bool:
        own = self.arguments
        if isinstance(own, str) and isinstance(other, str):
            return same_json(own, other)
        if isinstance(own, str):
            own = _parsed(own)
        if isinstance(other, str):
            other = _parsed(other)
        return own is not None and same_value(own, other)

    def meaning(self) -> str:
        """The same for all arguments that mean the same; numbers by spelling."""
        text = self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)
        try:
            return canonical(text)
        except JsonRefusedError:
            return text

    def arguments_like(self, form: Any) -> Any:
        """The arguments as text or as an object, as `form` is."""
        if isinstance(form, str) or not isinstance(self.arguments, str):
            return self.arguments
        return _parsed(self.arguments)


@dataclass(frozen=True, slots=True)
class Answer:
    """One assistant turn."""

    text: str
    calls: tuple[Call, ...] = ()

    def same_calls(self, other: "Answer") -> bool:
        return len(self.calls) == len(other.calls) and all(map(Call.same_as, self.calls, other.calls))


def answers_in(response: Any) -> Iterator[Answer]:
    """Every assistant turn in a whole response, or in the parsed chunks or events of a streamed one.

    Chat Completions, Responses and Anthropic messages; nothing comes out of anything else.
    """
    if isinstance(response, Sequence) and not isinstance(response, str | bytes):
        response = assembled([event for event in response if isinstance(event, dict)])
    if not isinstance(response, Mapping):
        return
    choices = response.get("choices")
    if isinstance(choices, list):
        for choice in choices:
            message = choice.get("message") if isinstance(choice, dict) else None
            if isinstance(message, dict):
                yield answer_of([message])
    elif isinstance(response.get("output"), list):
        yield answer_of(response["output"])
    elif isinstance(response.get("content"), list):
        yield answer_of([response])


def answer_of(items: Sequence[Any]) -> Answer:
    """The assistant turn that consists of these messages or items."""
    texts: list[str] = []
    calls: list[Call] = []
    for item in items:
        if isinstance(item, dict):
            texts += texts_of(item.get("content"))
            calls += [place.call for place in calls_in(item, ())]
    return Answer("".join(texts), tuple(calls))


def texts_of(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        return []
    return [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]


@dataclass(frozen=True, slots=True)
class CallPlace:
    """A call and where its id and its arguments stand."""

    call: Call
    id_path: tuple[str | int, ...]
    arguments_path: tuple[str | int, ...]


def calls_in(item: Mapping[str, Any], path: tuple[str | int, ...]) -> Iterator[CallPlace]:
    """The tool calls of one assistant message or item at `path`."""
    if item.get("type") == "function_call":
        call = _call(item.get("call_id"), item.get("name"), item.get("arguments"))
        if call:
            yield CallPlace(call, (*path, "call_id"), (*path, "arguments"))
        return
    for index, block in _dicts(item.get("content")):
        call = _call(block.get("id"), block.get("name"), block.get("input"))
        if block.get("type") == "tool_use" and call:
            here = (*path, "content", index)
            yield CallPlace(call, (*here, "id"), (*here, "input"))
    for index, entry in _dicts(item.get("tool_calls")):
        function = entry.get("function")
        if isinstance(function, dict):
            call = _call(entry.get("id"), function.get("name"), function.get("arguments"))
            if call:
                here = (*path, "tool_calls", index)
                yield CallPlace(call, (*here, "id"), (*here, "function", "arguments"))


def result_ids_in(
    item: Mapping[str, Any], path: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Where a user turn or tool result names the calls that it answers."""
    for key in ("tool_call_id", "call_id"):
        if isinstance(item.get(key), str):
            yield (*path, key), item[key]
    for index, block in _dicts(item.get("content")):
        if isinstance(block.get("tool_use_id"), str):
            yield (*path, "content", index, "tool_use_id"), block["tool_use_id"]


def _call(id_: Any, name: Any, arguments: Any) -> Call | None:
    if isinstance(id_, str) and isinstance(name, str) and isinstance(arguments, str | dict):
        return Call(id_, name, arguments)
    return None


def _dicts(values: Any) -> list[tuple[int, dict[str, Any]]]:
    if not isinstance(values, list):
        return []
    return [(index, value) for index, value in enumerate(values) if isinstance(value, dict)]


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
