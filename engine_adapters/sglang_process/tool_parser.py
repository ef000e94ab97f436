"""Which of SGLang's tool parsers a model is served with, where the operator names none."""

import re
from collections.abc import Mapping

from engine_adapters.embedded.output.tool_parsers import detect

# SGLang's names for families known here. Its own detection ("auto") knows more, but not all of these.
_NAMES: Mapping[str, str] = {"hermes": "hermes", "llama3_json": "llama3", "mistral": "mistral"}
_ON_A_LINE = re.compile(
    r"<tool_call>(?:\n|\\n)"
)  # as Qwen writes calls, in a template's string or in its text


def sglang_tool_parser(template: str) -> str:
    """SGLang's name of the parser for a chat template; "auto" leaves it to SGLang."""
    family = detect(template)
    if family is None:
        return "auto"
    if family.name == "hermes" and _ON_A_LINE.search(template):
        return "qwen"
    return _NAMES.get(family.name, "auto")
