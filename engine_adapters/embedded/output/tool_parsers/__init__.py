"""Tool calls in a model's text: one parser for each family of models."""

from engine_adapters.embedded.output.tool_parsers import hermes, llama3_json, mistral  # each registers itself
from engine_adapters.embedded.output.tool_parsers.base import (
    CallArguments,
    CallStart,
    ContentPiece,
    ToolParser,
    ToolPiece,
    detect,
    tool_parser,
    tool_parser_names,
)

__all__ = [
    "CallArguments",
    "CallStart",
    "ContentPiece",
    "ToolParser",
    "ToolPiece",
    "detect",
    "hermes",
    "llama3_json",
    "mistral",
    "tool_parser",
    "tool_parser_names",
]
