"""Special tokens are found where they are written, whatever the content is shaped like."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canon.errors import ModelFolderError
from canon.tokens import ControlTokenScanner
from tests.canon.sample_tokenizers import SPECIAL, WORDS_ADDED, sample, template, write_folder

SCANNER = ControlTokenScanner(SPECIAL)
TEXT = st.lists(st.sampled_from((*SPECIAL, *WORDS_ADDED, "a", " ", '"', "\\")), max_size=4).map("".join)
VALUES = st.recursive(
    TEXT | st.none() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=12,
)


def written(value: object) -> int:
    """How many there are in strings and names, counted the plain way."""
    if isinstance(value, str):
        # No token is a part of another here, so that each can be counted by itself.
        return sum(value.count(token) for token in SPECIAL)
    if isinstance(value, dict):
        return sum(written(name) + written(item) for name, item in value.items())
    return sum(map(written, value)) if isinstance(value, list) else 0


def with_arguments(text: str) -> dict[str, object]:
    return {"messages": [{"tool_calls": [{"function": {"name": "f", "arguments": text}}]}]}


@given(VALUES)
def test_all_are_counted_in_values_and_in_names(value: object) -> None:
    assert sum(SCANNER.found({"messages": value}).values()) == written(value)


@given(VALUES, st.booleans())
def test_all_are_counted_in_arguments_escaped_or_not(value: object, ascii_only: bool) -> None:
    text = json.dumps({"q": value}, ensure_ascii=ascii_only).replace("<", "\\u003c" if ascii_only else "<")
    assert sum(SCANNER.found(with_arguments(text)).values()) == written(value)


@given(VALUES, st.booleans(), st.booleans())
def test_bytes_that_are_said_to_have_none_have_none(value: object, ascii_only: bool, within: bool) -> None:
    content: dict[str, object] = {"messages": value}
    if within:
        content = with_arguments(json.dumps({"q": value}, ensure_ascii=ascii_only))
    raw = json.dumps(content, ensure_ascii=ascii_only)
    scanner = ControlTokenScanner(["<|im_end|>", "<s>"])
    for written_raw in (raw, raw.replace("<", "\\u003c")):
        if not scanner.may_be_in(written_raw.encode()):
            assert not scanner.found(json.loads(written_raw))


def test_bytes_without_any_beginning_of_a_token_are_not_looked_through() -> None:
    raw = b'{"messages": [{"content": "plain"}]}'
    assert not ControlTokenScanner(["<|im_end|>", "<s>"]).may_be_in(raw)
    assert not ControlTokenScanner([]).may_be_in(raw)
    assert ControlTokenScanner(["plain", "<s>"]).may_be_in(raw)


def test_a_token_that_json_may_spell_in_a_short_way_is_always_looked_for() -> None:
    for token in ("/s>", "\n\n"):
        scanner = ControlTokenScanner([token])
        raw = json.dumps({"messages": token}).replace("/", "\\/")
        assert scanner.may_be_in(raw.encode())
        assert scanner.found(json.loads(raw)) == {"messages": 1}


def test_a_folder_s_special_tokens_are_those_of_its_tokenizer(tmp_path: Path) -> None:
    scanner = ControlTokenScanner.from_folder(
        write_folder(tmp_path, sample("byte_level"), template("chatml"))
    )
    content = {
        "messages": [{"role": "user", "content": "a"}, {"content": [{"text": "<|im_end|> <tool_call> <s>"}]}],
        "tools": [{"function": {"description": "ends in </s>"}}],
    }
    assert scanner.found(content) == {"messages[1].content[0].text": 2, "tools[0].function.description": 1}


def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match=r"tokenizer\.json is missing"):
        ControlTokenScanner.from_folder(tmp_path)


def test_arguments_with_a_name_twice_hide_nothing() -> None:
    text = '{"q": "<s>", "q": "</s>"}'
    path = "messages[0].tool_calls[0].function.arguments"
    assert SCANNER.found(with_arguments(text)) == {f"{path}.q": 1, path: 1}


def test_depth_is_no_matter() -> None:
    value: object = "<s>"
    for _ in range(20_000):
        value = [value]
    ((path, count),) = SCANNER.found({"input": value}).items()
    assert (path, count) == ("input" + "[0]" * 20_000, 1)


def test_paths_are_bounded_in_number_and_their_names_in_length() -> None:
    found = SCANNER.found({"n" * 1_000_000: ["<s>"] * 1000})
    assert len(found) == 257
    assert max(map(len, found)) < 110
    assert found["..."] == 1000 - 256
    assert next(iter(found)) == "n" * 100 + "[0]"
