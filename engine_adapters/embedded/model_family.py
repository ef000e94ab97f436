"""What a model's chat template tells about its output: the form of its tool calls, and whether it thinks."""

from collections.abc import Collection
from dataclasses import replace

from tokenizers import Tokenizer

from engine_adapters.base import GenerateRequest, ToolOptions
from engine_adapters.embedded.output.pipeline import OutputPipeline, reads_calls
from engine_adapters.embedded.output.reasoning import (
    ReasoningParser,
    ReasoningTags,
    behind_reasoning,
    detect_reasoning,
)
from engine_adapters.embedded.output.tool_parsers import detect, tool_parser
from engine_adapters.errors import EngineError, InvalidRequestError


class ModelFamily:
    """Makes the output side of one request.

    Args:
        template: the chat template's text, to detect the family from.
        tool_parser_name: the operator's choice; None: detect it.

    Raises:
        EngineError: there is no tool parser of that name.
    """

    def __init__(self, template: str, tokenizer: Tokenizer, tool_parser_name: str | None = None) -> None:
        self._tokenizer = tokenizer
        try:
            self._parser = detect(template) if tool_parser_name is None else tool_parser(tool_parser_name)
        except ValueError as error:
            raise EngineError(str(error)) from None
        self._tags = detect_reasoning(template, tokenizer)

    @property
    def tool_parser_name(self) -> str | None:
        """None: the form of this model's tool calls is not known."""
        return None if self._parser is None else self._parser.name

    def pipeline(self, request: GenerateRequest, index: int) -> OutputPipeline:
        """What turns the text of one choice into events."""
        tags, parser = self._reasoning_tags(request), None
        if request.tools is not None and self._parser is not None:
            parser = self._parser(parallel=request.tools.parallel)
        reasoning = None
        if tags is not None:
            reasoning = ReasoningParser(tags.start, tags.end, starts_inside=request.starts_in_reasoning)
        return OutputPipeline(request.tools, parser, reasoning, index)

    def visible_tokens(self, request: GenerateRequest) -> Collection[str]:
        """Control tokens that have to stay in the text of this request, for its parsers."""
        tags = self._reasoning_tags(request)
        calls = self._parser.special_tokens if self._parser is not None and reads_calls(request.tools) else ()
        return {*calls, *((tags.start, tags.end) if tags is not None else ())}

    def tool_grammar(self, tools: ToolOptions) -> str | None:
        """Lark for the calls that the request forces; None where it forces none.

        Raises:
            InvalidRequestError: a schema that cannot be followed, or a model whose calls we cannot read.
        """
        if not forces_call(tools):
            return None
        if self._parser is None:
            raise InvalidRequestError(
                "A tool call cannot be forced: the form of this model's calls is not known.",
                param="tool_choice",
            )
        return self._parser.grammar(tools, self._tokenizer)

    def possible_calls(self, tools: ToolOptions | None) -> str | None:
        """Lark for the calls that may come in place of a text; None where none may.

        Raises:
            InvalidRequestError: a tool's schema cannot be followed.
        """
        if tools is None or self._parser is None or not reads_calls(tools):
            return None
        return self._parser.grammar(replace(tools, choice="required", named=False), self._tokenizer)

    def behind_thinking(self, request: GenerateRequest, grammar: str) -> str | None:
        """`grammar` for the answer of a request that may think first; None where it does not think."""
        tags = self._reasoning_tags(request)
        if tags is None:
            return None
        return behind_reasoning(grammar, tags, self._tokenizer, request.starts_in_reasoning)

    def _reasoning_tags(self, request: GenerateRequest) -> ReasoningTags | None:
        return self._tags if request.route == "chat" and request.reasoning else None


def forces_call(tools: ToolOptions | None) -> bool:
    """Whether the answer has to be a tool call."""
    return tools is not None and (tools.named or tools.choice == "required")
