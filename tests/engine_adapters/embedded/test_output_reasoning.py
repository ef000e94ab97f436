"""Thinking and answer are told apart, the same however the text was cut."""

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from canon.tokens.thinking import find_thinking_tags
from engine_adapters.base import ToolOptions
from engine_adapters.embedded.output.reasoning import (
    FAMILIES,
    Answer,
    ReasoningParser,
    ReasoningTags,
    Thought,
    behind_reasoning,
    detect_reasoning,
)
from engine_adapters.embedded.output.tool_parsers import tool_parser
from tests.output_tokenizers import END, byte_tokenizer

GOLDEN = [
    # text, starts inside, thinking, answer
    ("<think>\nhm\n</think>\n\nYes", False, "hm", "Yes"),
    ("\n<think>a\n\nb</think>c\n", False, "a\n\nb", "c\n"),
    ("hm\n</think>\nYes", True, "hm", "Yes"),
    ("<think>\nhm</think>Yes", True, "hm", "Yes"),
    ("<think>\n\n</think>\n\nYes", False, "", "Yes"),
    ("</think>Yes", True, "", "Yes"),
    ("Yes <think>no</think>", False, "", "Yes <think>no</think>"),
    ("<think>a</think>b<think>c</think>", False, "a", "b<think>c</think>"),
    ("<think>cut off </thin", False, "cut off </thin", ""),
    ("cut off\n", True, "cut off", ""),
    ("a <\n<", True, "a <\n<", ""),
    ("a\n\n</thi", True, "a\n\n</thi", ""),
    ("<thi", False, "", "<thi"),
    ("<thi", True, "<thi", ""),
    (" \n", False, "", " \n"),
    ("<think>a </ b < c\n\n</think>", False, "a </ b < c", ""),
    ("<think>", False, "", ""),
    ("", True, "", ""),
]


def run(parser: ReasoningParser, pieces: Iterable[str]) -> tuple[str, str]:
    out = [*(out for piece in pieces for out in parser.push(piece)), *parser.finish()]
    kinds = [type(piece) for piece in out]
    assert kinds == sorted(kinds, key=[Thought, Answer].index), "the answer comes last"
    assert all(piece.text for piece in out)
    thought = "".join(piece.text for piece in out if isinstance(piece, Thought))
    return thought, "".join(piece.text for piece in out if isinstance(piece, Answer))


@pytest.mark.parametrize(("text", "inside", "thinking", "answer"), GOLDEN)
def test_golden_texts_at_every_cut(text: str, inside: bool, thinking: str, answer: str) -> None:
    for at in range(len(text) + 1):
        parser = ReasoningParser(starts_inside=inside)
        assert run(parser, [text[:at], text[at:]]) == (thinking, answer)
    assert run(ReasoningParser(starts_inside=inside), text) == (thinking, answer)


@given(
    fragments=st.lists(st.sampled_from(["<think>", "</think>", "\n", "<", "/think>", "a", " "]), max_size=15),
    inside=st.booleans(),
    data=st.data(),
)
def test_any_text_at_any_cut_gives_the_same_as_in_one_piece(
    fragments: list[str], inside: bool, data: st.DataObject
) -> None:
    text = "".join(fragments)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])]
    whole = run(ReasoningParser(starts_inside=inside), [text])
    assert run(ReasoningParser(starts_inside=inside), pieces) == whole
    if "think>" not in text:
        assert whole == ((text.strip("\n"), "") if inside else ("", text))


def test_text_of_a_model_that_does_not_think_is_not_held_back() -> None:
    parser = ReasoningParser()
    assert parser.push("Yes") == [Answer("Yes")]
    assert parser.push(" <think") == [Answer(" <think")]


def test_thinking_streams() -> None:
    parser = ReasoningParser(starts_inside=True)
    assert parser.push("hm") == [Thought("hm")]
    assert parser.push(" so\n") == [Thought(" so")]
    assert parser.push("then") == [Thought("\nthen")]


def test_the_tags_are_found_by_template_or_vocabulary() -> None:
    assert detect_reasoning("{{ '<think>\\n\\n</think>\\n\\n' }}") == ReasoningTags("<think>", "</think>")
    assert detect_reasoning("[THINK]{{ thinking }}[/THINK]") == ReasoningTags("[THINK]", "[/THINK]")
    assert detect_reasoning("plain") is None
    assert detect_reasoning("plain", byte_tokenizer()) is None
    assert detect_reasoning(None, byte_tokenizer(("<think>", "</think>"))) == ReasoningTags()


@pytest.mark.parametrize("template", ["", *(f"{t.start}{t.end}" for t in FAMILIES), "<think>[THINK][/THINK]"])
@pytest.mark.parametrize("vocabulary", [(), *((t.start, t.end) for t in FAMILIES)])
def test_prompts_and_answers_are_read_by_the_same_tags(template: str, vocabulary: tuple[str, ...]) -> None:
    ours = detect_reasoning(template, byte_tokenizer(vocabulary))
    prompts = find_thinking_tags(template, set(vocabulary))
    assert (None if ours is None else (ours.start, ours.end)) == prompts or prompts is None


def test_a_template_that_only_cuts_old_thinking_off_is_one_that_thinks() -> None:
    assert detect_reasoning("{{ content.split('</think>')[-1] }}") == ReasoningTags()


@pytest.mark.parametrize("tags", [(), ("<think>", "</think>")])
@pytest.mark.parametrize("inside", [True, False])
def test_a_grammar_behind_reasoning_leaves_thinking_free_and_binds_the_answer(
    tags: tuple[str, ...], inside: bool
) -> None:
    tokenizer = byte_tokenizer(tags)
    grammar = behind_reasoning('start: "yes" | "no"', ReasoningTags(), tokenizer, inside)
    engine = LLTokenizer(tokenizer.to_str(), eos_token=tokenizer.token_to_id(END))

    def allowed(text: str) -> bool:
        matcher = LLMatcher(engine, grammar)
        assert not matcher.is_error(), matcher.get_error()
        ids = tokenizer.encode(text).ids
        return bool(
            matcher.validate_tokens(ids) == len(ids)
            and matcher.consume_tokens(ids)
            and matcher.is_accepting()
        )

    opening = "" if inside else "<think>"
    assert allowed(f"{opening}\nlet me </b> think 👩‍👧\n</think>\n\nyes")
    assert allowed(f"{opening}</think>no")
    assert not allowed(f"{opening}hm</think>\n\nmaybe")
    assert not allowed(f"{opening}hm")
    assert allowed("yes") is not inside


def test_a_forced_call_may_follow_thinking() -> None:
    tokenizer = byte_tokenizer(("<think>", "</think>", "<tool_call>", "</tool_call>"))
    tools = ToolOptions(({"type": "function", "function": {"name": "f"}},), "required", parallel=False)
    calls = tool_parser("hermes").grammar(tools, tokenizer)
    assert calls is not None
    engine = LLTokenizer(tokenizer.to_str(), eos_token=tokenizer.token_to_id(END))
    matcher = LLMatcher(engine, behind_reasoning(calls, ReasoningTags(), tokenizer, starts_inside=True))
    text = 'hm {"\n</think>\n\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    assert matcher.consume_tokens(tokenizer.encode(text).ids), matcher.get_error()
    assert matcher.is_accepting()
