"""Special tokens that are written in a request: in messages, tools or template variables."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from canon.tokens.lexemes import parse_object
from canon.tokens.text_scanner import TextScanner


def written_tokens(
    special: TextScanner,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    template_kwargs: Mapping[str, Any],
) -> dict[str, int]:
    """How many of the `special` tokens stand at which path of the request, for example `messages[1].content[0].text`.

    The request has passed the checks of `PlainCopy`: its depth is bounded.
    """
    content = {"messages": list(messages), "tools": tools, "chat_template_kwargs": template_kwargs}
    found: dict[str, int] = {}
    for path, text in _texts(content, ""):
        if count := len(special.spans(text)):
            found[path] = found.get(path, 0) + count
    return found


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield path, key
            inside = f"{path}.{key}" if path else key
            # Templates get arguments parsed, with what is escaped in them.
            yield from _texts(_parsed(item) if key == "arguments" else item, inside)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _texts(item, f"{path}[{index}]")


def _parsed(arguments: Any) -> Any:
    value = parse_object(arguments) if isinstance(arguments, str) else None
    return arguments if value is None else value
