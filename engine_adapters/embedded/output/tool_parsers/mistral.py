"""Mistral: `[TOOL_CALLS]` and a JSON list, or a name and its arguments."""

import json
import secrets
import string
from typing import ClassVar

from tokenizers import Tokenizer

from engine_adapters.base import ToolOptions
from engine_adapters.embedded.output.tags import literal, partial_tag, tag, tag_token
from engine_adapters.embedded.output.tool_parsers.base import register
from engine_adapters.embedded.output.tool_parsers.grammar import forced_tools, rules
from engine_adapters.embedded.output.tool_parsers.json_calls import JsonCallParser

_ARGUMENTS = "[ARGS]"
_CALL_ID = "[CALL_ID]"
_ID_ALPHABET = string.ascii_letters + string.digits


@register
class MistralParser(JsonCallParser):
    """Reads both forms: `[TOOL_CALLS][{"name": "f", "arguments": {...}}, ...]`, and, from 2025 on,
    `[TOOL_CALLS]f[ARGS]{...}`, once for each call, perhaps with `[CALL_ID]...` behind the name.

    Ids are nine letters and digits, because Mistral's chat templates refuse any others in a conversation.
    """

    name: ClassVar[str] = "mistral"
    start: ClassVar[str] = "[TOOL_CALLS]"
    special_tokens: ClassVar[tuple[str, ...]] = (start, _ARGUMENTS, _CALL_ID)

    @staticmethod
    def new_id() -> str:
        return "".join(secrets.choice(_ID_ALPHABET) for _ in range(9))

    @classmethod
    def writes(cls, template: str) -> bool:
        return cls.start in template

    @classmethod
    def grammar(cls, tools: ToolOptions, tokenizer: Tokenizer) -> str | None:
        forced = forced_tools(tools)
        if forced is None:
            return None
        opening = tag(tokenizer, cls.start)
        if tag_token(tokenizer, _ARGUMENTS) is not None:
            arguments = tag(tokenizer, _ARGUMENTS)
            named = [
                f"{opening} {literal(json.loads(tool.name))} {arguments} {tool.arguments}" for tool in forced
            ]
            return rules("call+" if tools.parallel else "call", named)
        objects = [
            f"{literal(head)} {tool.arguments} {literal('}')}"
            for tool in forced
            for head in [f'{{"name": {tool.name}, "arguments": ']
        ]
        more = ' (", " call)*' if tools.parallel else ""
        return rules(f'{opening} " "? "[" call{more} "]"', objects)

    def _behind_start(self) -> bool:
        self._skip_space()
        if self._text.startswith("[") or not self._text:
            return super()._behind_start()
        self._state = self._in_head
        return True

    def _in_head(self) -> bool:
        """The name, up to the arguments; no name has a bracket, a quote or a line break in it."""
        at = self._text.find(_ARGUMENTS)
        head = self._text[: at if at >= 0 else len(self._text) - partial_tag(self._text, _ARGUMENTS)]
        name, _, _ = head.partition(_CALL_ID)
        if any(char in name[: len(name) - partial_tag(name, _CALL_ID)] for char in '[]{}"\n'):
            self._give_back("")
            self._state = self._in_content
            return True
        if at < 0:
            return False
        self._in_list = False
        self._move(self._in_call, at + len(_ARGUMENTS))
        self._open_call(name.strip())
        return True
