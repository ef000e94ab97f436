"""SGLang's names of tool parsers."""

import pytest

from engine_adapters.sglang_process.tool_parser import sglang_tool_parser


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{{ '<tool_call>\\n{\"name\": ' }}", "qwen"),
        ("<tool_call>\n{{ call }}\n</tool_call>", "qwen"),
        ("<tool_call>{{ call }}</tool_call>", "hermes"),
        ("[TOOL_CALLS]{{ calls }}", "mistral"),
        ('{"name": function name, "parameters": dictionary of argument name and its value}', "llama3"),
        ("<tool_call>\n<function={{ name }}>", "auto"),
        ("{{ messages }}", "auto"),
    ],
)
def test_a_family_known_here_is_named_and_every_other_is_left_to_sglang(template: str, name: str):
    assert sglang_tool_parser(template) == name
