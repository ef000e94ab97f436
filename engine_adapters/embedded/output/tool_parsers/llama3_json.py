"""Llama 3.x: the whole answer is a JSON object."""

from typing import ClassVar

from tokenizers import Tokenizer

from engine_adapters.base import ToolOptions
from engine_adapters.embedded.output.tags import literal
from engine_adapters.embedded.output.tool_parsers.base import register
from engine_adapters.embedded.output.tool_parsers.grammar import forced_tools, rules
from engine_adapters.embedded.output.tool_parsers.json_calls import JsonCallParser


@register
class Llama3JsonParser(JsonCallParser):
    """Reads `{"name": "f", "parameters": {...}}` at the beginning of the text or behind `<|python_tag|>`.

    Further calls follow behind semicolons. An answer that is some other JSON object is content, and comes out when
    the object is complete.
    """

    name: ClassVar[str] = "llama3_json"
    start: ClassVar[str] = "<|python_tag|>"
    separators: ClassVar[str] = ";"
    bare: ClassVar[bool] = True
    special_tokens: ClassVar[tuple[str, ...]] = (start,)

    @classmethod
    def writes(cls, template: str) -> bool:
        return '"parameters": dictionary of argument name' in template

    @classmethod
    def grammar(cls, tools: ToolOptions, tokenizer: Tokenizer) -> str | None:
        forced = forced_tools(tools)
        if forced is None:
            return None
        calls = [
            f"{literal(head)} {tool.arguments} {literal('}')}"
            for tool in forced
            for head in [f'{{"name": {tool.name}, "parameters": ']
        ]
        return rules('call ("; " call)*' if tools.parallel else "call", calls)
