from typing import Any

import pytest

from canon.lint.segments import segments_of

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "a"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]}
CALLS = {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]}
TOOLS = [{"type": "function", "function": {"name": "f"}}]


def paths(body: dict[str, Any]) -> list[str]:
    return [".".join(map(str, piece.path)) for piece in segments_of(body)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"messages": [SYSTEM, USER]}, ["messages.0.content", "messages.1.content"]),
        ({"messages": [SYSTEM, USER], "tools": TOOLS}, ["messages.0.content", "tools.0", "messages.1.content"]),
        ({"messages": [USER], "tools": TOOLS}, ["tools.0", "messages.0.content"]),
        (
            {"messages": [PARTS, SYSTEM, USER], "tools": TOOLS},
            [
                "messages.0.content.0.text", "messages.0.content.1.text", "messages.1.content", "tools.0",
                "messages.2.content",
            ],
        ),
        (
            {"messages": [SYSTEM, CALLS], "tools": TOOLS, "system": "x"},
            [
                "system", "tools.0", "messages.0.content", "messages.1.tool_calls.0.id",
                "messages.1.tool_calls.0.function.name", "messages.1.tool_calls.0.function.arguments",
            ],
        ),
        ({"input": "x", "tools": TOOLS}, ["tools.0", "input"]),
        ({"input": "x", "tools": TOOLS, "instructions": "y"}, ["instructions", "tools.0", "input"]),
        ({"input": {"type": "text"}}, ["input.0.content"]),
        ({"messages": [{"role": ["system"], "content": "x"}, 7, USER]}, ["messages.0.content", "messages.2.content"]),
        ({"messages": [SYSTEM], "tools": {"not": "a list"}}, ["messages.0.content"]),
    ],
)  # fmt: skip
def test_pieces_stand_as_templates_print_them(body: dict[str, Any], expected: list[str]) -> None:
    assert paths(body) == expected


def test_a_plain_message_is_the_piece_that_any_other_way_to_write_it_is() -> None:
    plain = segments_of({"messages": [USER]})
    other = segments_of({"messages": [{**USER, "name": "n"}]})
    assert plain == other
