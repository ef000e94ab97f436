"""Text and log probabilities become events: nothing lost, nothing twice, thinking before calls."""

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from engine_adapters.base import (
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    ToolOptions,
)
from engine_adapters.embedded.output.detokenizer import IncrementalDetokenizer
from engine_adapters.embedded.output.pipeline import OutputPipeline
from engine_adapters.embedded.output.reasoning import ReasoningParser
from engine_adapters.embedded.output.stop_strings import StopStrings
from engine_adapters.embedded.output.tool_parsers import tool_parser

TOOLS = ({"type": "function", "function": {"name": "f"}},)
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
TEXT = f"<think>\nhm\n</think>\n\nI call.\n{CALL}\n"


def pipeline(
    choice: str = "auto", parallel: bool = True, thinks: bool = True, named: bool = False
) -> OutputPipeline:
    parser = tool_parser("hermes")(parallel=parallel, new_id=lambda: "id")
    tools = ToolOptions(TOOLS, choice, named, parallel)
    return OutputPipeline(tools, parser, ReasoningParser() if thinks else None, index=2)


def logprob(number: int) -> TokenLogprob:
    return TokenLogprob(number, "t", b"t", -0.5)


def run(
    through: OutputPipeline,
    pieces: Iterable[tuple[str, Sequence[TokenLogprob]]],
    reason: FinishReason = "stop",
) -> list[Event]:
    events = [event for text, logprobs in pieces for event in through.push(text, tuple(logprobs))]
    return events + through.finish(reason)


def plain(text: str) -> list[tuple[str, Sequence[TokenLogprob]]]:
    return [(char, ()) for char in text]


def collected(events: list[Event]) -> tuple[str, str, list[tuple[str, str]]]:
    """Thinking, content and calls, as a client puts them together."""
    thinking, text = "", ""
    calls: list[tuple[str, str]] = []
    for event in events:
        match event:
            case ReasoningDelta(index=2):
                thinking += event.text
            case TextDelta(index=2):
                text += event.text
            case ToolCallDelta(index=2, name=str(name)):
                assert event.call == len(calls)
                assert event.id == "id"
                calls.append((name, event.arguments))
            case ToolCallDelta(index=2):
                calls[event.call] = (calls[event.call][0], calls[event.call][1] + event.arguments)
    return thinking, text, calls


def test_thinking_content_and_calls_come_apart() -> None:
    events = run(pipeline(), plain(TEXT))
    assert collected(events) == ("hm", "I call.", [("f", '{"a": 1}')])
    assert events[-1] == Finished(2, "tool_calls")


def test_in_one_piece_each_part_is_one_event() -> None:
    events = run(pipeline(), [(TEXT, [logprob(1)])])
    assert events == [
        ReasoningDelta(2, "hm", (logprob(1),)),
        TextDelta(2, "I call."),
        ToolCallDelta(2, 0, "", "id", "f"),
        ToolCallDelta(2, 0, '{"a": 1}'),
        Finished(2, "tool_calls"),
    ]


@given(cuts=st.sets(st.integers(0, len(TEXT)), max_size=20), empty=st.integers(0, 3))
def test_every_logprob_comes_out_once_and_in_order(cuts: set[int], empty: int) -> None:
    bounds = [0, *sorted(cuts), len(TEXT)]
    pieces = [(TEXT[a:b], [logprob(at)]) for at, (a, b) in enumerate(itertools.pairwise(bounds))]
    pieces += [("", [logprob(len(pieces) + at)]) for at in range(empty)]
    events = run(pipeline(), pieces)
    assert collected(events) == ("hm", "I call.", [("f", '{"a": 1}')])
    given_out = [lp for event in events if not isinstance(event, Finished) for lp in event.logprobs]  # type: ignore[union-attr]
    assert given_out == [logprob(at) for at in range(len(pieces))]


def test_logprobs_without_text_come_out_at_the_end() -> None:
    through = OutputPipeline()
    assert through.push("", (logprob(1),)) == []
    assert through.finish("length") == [TextDelta(0, "", (logprob(1),)), Finished(0, "length")]


@pytest.mark.parametrize(
    "through",
    [
        OutputPipeline(index=2),
        OutputPipeline(None, tool_parser("hermes")(), None, 2),
        OutputPipeline(ToolOptions(TOOLS, "none"), tool_parser("hermes")(), None, 2),
        OutputPipeline(ToolOptions(TOOLS, "auto"), None, None, 2),
    ],
)
def test_without_tools_or_with_choice_none_calls_are_text(through: OutputPipeline) -> None:
    assert run(through, [(TEXT, ())]) == [TextDelta(2, TEXT), Finished(2, "stop")]


@pytest.mark.parametrize(("choice", "named"), [("required", False), ("f", True), ("none", True)])
def test_a_forced_choice_is_read_like_any_other(choice: str, named: bool) -> None:
    events = run(pipeline(choice, named=named, thinks=False), plain(CALL))
    assert collected(events) == ("", "", [("f", '{"a": 1}')])
    assert events[-1] == Finished(2, "tool_calls")


def test_the_reason_stays_where_no_call_was_made_or_the_text_was_cut_off() -> None:
    assert pipeline().finish("stop", "END") == [Finished(2, "stop", "END")]
    cut = CALL[: CALL.index("1")]
    events = run(pipeline(thinks=False), plain(cut), "length")
    assert collected(events) == ("", "", [("f", '{"a": ')])
    assert events[-1] == Finished(2, "length")


def test_a_call_inside_thinking_is_thinking() -> None:
    assert collected(run(pipeline(), plain(f"<think>{CALL}</think>x"))) == (CALL, "x", [])


def test_done_after_the_only_call_that_is_allowed() -> None:
    through = pipeline(parallel=False)
    assert not through.done
    events = through.push(TEXT)
    assert through.done
    events += through.push(CALL) + through.finish("stop")
    assert collected(events) == ("hm", "I call.", [("f", '{"a": 1}')])
    assert not OutputPipeline().done


def test_what_is_held_back_comes_out_at_the_end() -> None:
    assert collected(run(pipeline(), plain("<thi"))) == ("", "<thi", [])
    assert collected(run(pipeline(), plain("Hi <tool_"))) == ("", "Hi <tool_", [])


def test_from_token_ids_to_events(smollm2_folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(smollm2_folder / "tokenizer.json"))
    arguments = '{"who": "👩‍👩‍👧 日本 e\u0301"}'
    text = f'<think>ça 👍</think>Voilà 🏳️‍🌈.\n<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>STOP x'
    detokenizer, stops, through = IncrementalDetokenizer(tokenizer), StopStrings(("STOP",)), pipeline()
    events: list[Event] = []
    for token_id in tokenizer.encode(text).ids:
        result = stops.push(detokenizer.push(token_id))
        events += through.push(result.text)
        assert "\ufffd" not in result.text
        if result.stop is not None:
            events += through.finish("stop", result.stop)
            break
    assert collected(events) == ("ça 👍", "Voilà 🏳️‍🌈.", [("f", arguments)])
    assert events[-1] == Finished(2, "tool_calls", "STOP")
