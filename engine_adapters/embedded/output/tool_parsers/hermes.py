"""Hermes and Qwen: `<tool_call>` around a JSON object."""

from typing import ClassVar

from tokenizers import Tokenizer

from engine_adapters.base import ToolOptions
from engine_adapters.embedded.output.tags import literal, tag
from engine_adapters.embedded.output.tool_parsers.base import register
from engine_adapters.embedded.output.tool_parsers.grammar import forced_tools, rules
from engine_adapters.embedded.output.tool_parsers.json_calls import JsonCallParser


@register
class HermesParser(JsonCallParser):
    """Reads `<tool_call>{"name": "f", "arguments": {...}}</tool_call>`, or a list of such objects in a tag."""

    name: ClassVar[str] = "hermes"
    start: ClassVar[str] = "<tool_call>"
    end: ClassVar[str] = "</tool_call>"
    special_tokens: ClassVar[tuple[str, ...]] = (start, end)

    @classmethod
    def writes(cls, template: str) -> bool:
        # Other families put XML of their own into the same tag.
        return cls.start in template and not any(form in template for form in ("<function=", "<arg_key>"))

    @classmethod
    def grammar(cls, tools: ToolOptions, tokenizer: Tokenizer) -> str | None:
        forced = forced_tools(tools)
        if forced is None:
            return None
        opening, closing = tag(tokenizer, cls.start), tag(tokenizer, cls.end)
        calls = [
            f"{opening} {literal(head)} {tool.arguments} {literal(tail)} {closing}"
            for tool in forced
            for head, tail in [(f'\n{{"name": {tool.name}, "arguments": ', "}\n")]
        ]
        more = ' ("\\n" call)*' if tools.parallel else ""
        return rules("call" + more, calls)
