"""Prompts built from templates with random values: nothing is lost, and prompts that differ in values only converge."""

import datetime
from collections import Counter
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import canon

PROSE = (
    "You are the help desk of a bicycle shop.",
    "Answer in two sentences at most.",
    "The contract was signed on 2024-01-02.",
    "- Repairs are booked by phone.",
    "## How to answer",
    "Prices:",
    "Opening hours: 9:00-17:00",
    "",
    "",
    "```\nCurrent time: 10:31:07\n```",
    "<example>\nSession ID: abc123\n</example>",
    "<rules>\nBe brief.\n</rules>",
    "> Today is Monday.",
    "答えは短く。",
)
TEMPLATES = (
    "Current time: {clock}",
    "- Current date and time: {clock}",
    "It is now {clock}.",
    "**Aktuelle Zeit:** {clock} Uhr",
    "現在の日時: {clock}",
    "## Current Time\n{clock}\n",
    "<current_time>{clock}</current_time>",
    "Request-Id: {uuid}",
    "<env>\nWorking directory: {path}\nPlatform: linux\nCurrent time: {clock}\n</env>",
    "<metadata>\n- Current time: {clock}\n- 3 blocks\n</metadata>",
    "gitStatus:\nCurrent branch: {word}\nStatus:\nM {word}.py\n",
    "Scratch directory: {path}",
    "Iteration {count} of 5000. Budget left: {count}.",
    "# Environment\n- cwd: {path}\n- PID: {count}\n",
    "<user_context>name: {word}; tz: Europe/Oslo</user_context>",
)
CLOCKS = st.datetimes(datetime.datetime(2001, 1, 1), datetime.datetime(2050, 1, 1)).map(
    lambda moment: moment.isoformat(" ", "seconds")
)
WORDS = st.text("abcdefgh", min_size=3, max_size=8)


@st.composite
def values(draw: st.DrawFn) -> dict[str, str]:
    return {
        "clock": draw(CLOCKS),
        "uuid": str(draw(st.uuids())),
        "path": f"/w/{draw(WORDS)}/{draw(WORDS)}",
        "word": draw(WORDS),
        "count": str(draw(st.integers(1, 5000))),
    }


@dataclass(frozen=True)
class Prompt:
    pieces: tuple[str, ...]
    shape: str
    question: str
    tool_loop: bool

    def body(self, values: dict[str, str]) -> dict[str, Any]:
        text = "\n".join(piece.format(**values) for piece in self.pieces)
        part = [{"type": "text", "text": text}]
        turns: list[Any] = [{"role": "user", "content": self.question}]
        if self.tool_loop:
            turns.append({"role": "assistant", "content": None, "tool_calls": []})
            turns.append({"role": "tool", "tool_call_id": "c", "content": "4 left"})
        match self.shape:
            case "responses":
                return {"instructions": text, "input": self.question}
            case "messages":
                return {"system": part, "messages": turns[:1]}
            case "parts":
                return {"messages": [{"role": "system", "content": part}, *turns]}
        return {"messages": [{"role": "developer", "content": text}, *turns]}


PROMPTS = st.builds(
    Prompt,
    st.lists(st.sampled_from(PROSE + TEMPLATES), min_size=1, max_size=12).map(tuple),
    st.sampled_from(("chat", "parts", "messages", "responses")),
    st.text(min_size=1, max_size=30),
    st.booleans(),
)


def texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for key, each in value.items() if key not in ("type", "role") for text in texts(each)]
    return [text for each in value for text in texts(each)] if isinstance(value, list) else []


def lines(body: Any) -> Counter[str]:
    found = Counter(line.strip() for text in texts(body) for line in text.splitlines())
    for mark in ("", "[context]", "[/context]"):
        del found[mark]
    return found


def newest(body: dict[str, Any]) -> Any:
    return body["input"] if "input" in body else body["messages"][-1]


def before_newest(body: dict[str, Any]) -> Any:
    """What comes before the newest turn, whose text a note follows."""
    return {**body, "input": None} if "input" in body else {**body, "messages": body["messages"][:-1]}


@given(PROMPTS, values())
def test_every_line_is_still_there_once_and_the_user_is_quoted_exactly(
    prompt: Prompt, filled: dict[str, str]
):
    body = prompt.body(filled)
    result = canon.canonicalize(body, policy="full").body
    assert lines(result) == lines(body)
    asked = "4 left" if prompt.tool_loop and prompt.shape in ("chat", "parts") else prompt.question
    said = [text for text in texts(newest(result)) if text.startswith(asked)]
    assert said
    assert prompt.question in "".join(texts(result))


@given(PROMPTS, values())
def test_canon_changes_nothing_in_what_it_made(prompt: Prompt, filled: dict[str, str]):
    once = canon.canonicalize(prompt.body(filled), policy="full").body
    assert canon.canonicalize(prompt.body(filled), policy="full").body == once
    assert canon.canonicalize(once, policy="full").body == once


@given(PROMPTS, values(), values())
def test_prompts_that_differ_in_values_of_the_moment_converge(
    prompt: Prompt, one: dict[str, str], other: dict[str, str]
):
    pieces = tuple(dict.fromkeys(prompt.pieces))  # the same label twice may be a list of records
    prompt = Prompt(pieces, prompt.shape, prompt.question, prompt.tool_loop)
    results = [canon.canonicalize(prompt.body(filled), policy="full").body for filled in (one, other)]
    assert before_newest(results[0]) == before_newest(results[1])
