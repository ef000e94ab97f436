"""What canon costs: a small body that needs no edit, a large prompt seen before, and bodies of growing size."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.canon.texts import prose
from bench.measure import alternate, cpu_seconds, seconds
from canon import ConversationMemory, canonicalize
from canon.tokens import PromptTokenizer

_CALLS = 200  # of what takes microseconds
_ANSWER = 7_800  # characters of one long answer
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)  # bytes
POLICIES = ("safe", "full")


@dataclass(frozen=True, slots=True)
class CleanFigures:
    """Medians in seconds for one call over a 4 KB chat body."""

    json: float  # json.loads and json.dumps of the body
    canon: dict[str, float]  # by policy


@dataclass(frozen=True, slots=True)
class PromptFigures:
    """Medians in seconds, for a prompt of a megabyte."""

    tokens: int
    plain: float  # a plain encode of the whole text
    again: float  # canonicalize, render and tokens; seen before but for the last turn
    growing: float  # the same of one message that has grown by some words


def clean(rounds: int) -> CleanFigures:
    """A chat of 4 KB as a careful client sends it."""
    body = small_body()
    text = json.dumps(body)
    cases = {policy: _each(partial(canonicalize, body, policy)) for policy in POLICIES}
    cases["json"] = _each(lambda: json.dumps(json.loads(text)))
    figures = alternate(cases, rounds, lambda _: None)
    return CleanFigures(figures["json"], {policy: figures[policy] for policy in POLICIES})


def small_body() -> dict[str, Any]:
    """4 KB: a system prompt, two tools, three turns; nothing in it needs an edit."""
    rng = random.Random(3)
    tools = [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": prose(rng, 150),
                "parameters": {
                    "type": "object",
                    "properties": {"query": {"type": "string"}},
                    "required": ["query"],
                },
            },
        }
        for name in ("fetch", "search")
    ]
    turns = [{"role": role, "content": prose(rng, 400)} for role in ("user", "assistant", "user")]
    return {
        "model": "m",
        "messages": [{"role": "system", "content": prose(rng, 1900)}, *turns],
        "tools": tools,
    }


def prompts(tokenizer: PromptTokenizer, plain: Callable[[str], int], rounds: int, size: int) -> PromptFigures:
    """`plain` encodes a text by the tokenizer itself and gives the number of tokens."""
    long_chat = _LongChat(tokenizer, size)
    growing = _Growing(tokenizer, size)
    text = "".join(message["content"] for message in long_chat.messages)
    count = plain(text)
    figures = alternate(
        {
            "plain": lambda: seconds(lambda: plain(text)),
            "again": lambda: seconds(long_chat.ask),
            "growing": lambda: seconds(growing.ask),
        },
        rounds,
        lambda _: None,
    )
    return PromptFigures(count, figures["plain"], figures["again"], figures["growing"])


class _Asked:
    """Canonicalize, render and encode under `full` with a memory, as the gateway does."""

    def __init__(self, tokenizer: PromptTokenizer) -> None:
        self._tokenizer = tokenizer
        self._memory = ConversationMemory()

    def send(self, messages: list[dict[str, str]]) -> None:
        body = canonicalize({"model": "m", "messages": messages}, "full", self._memory, "bench").body
        self._tokenizer.chat(body["messages"], scope="bench")


class _LongChat(_Asked):
    """A conversation of a given size, asked again and again with another last turn."""

    def __init__(self, tokenizer: PromptTokenizer, size: int) -> None:
        super().__init__(tokenizer)
        rng = random.Random(5)
        self.messages = [{"role": "system", "content": prose(rng, 20_000)}]
        for _ in range((size - 20_000) // (_ANSWER + 2_000)):
            self.messages.append({"role": "user", "content": prose(rng, 2_000)})
            self.messages.append({"role": "assistant", "content": prose(rng, _ANSWER)})
        self._asked = 0
        self.ask()

    def ask(self) -> None:
        self._asked += 1
        self.send([*self.messages, {"role": "user", "content": f"Question {self._asked}, please answer."}])


class _Growing(_Asked):
    """One message of a given size that grows by some words at a time."""

    def __init__(self, tokenizer: PromptTokenizer, size: int) -> None:
        super().__init__(tokenizer)
        self._rng = random.Random(6)
        self._text = prose(self._rng, size)
        self.ask()

    def ask(self) -> None:
        self._text += " " + prose(self._rng, 500)
        self.send([{"role": "user", "content": self._text}])


def growth(rounds: int) -> dict[str, dict[int, float]]:
    """CPU seconds of one canonicalize by policy and body size; every kind of text that rules look at is in the body."""
    found: dict[str, dict[int, float]] = {policy: {} for policy in POLICIES}
    for size in SIZES:
        body = _mixed_body(size)
        for policy, figure in alternate(_whole_calls(body), rounds, lambda _: None).items():
            found[policy][size] = figure
    return found


def _whole_calls(body: dict[str, Any]) -> dict[str, Callable[[], float]]:
    def timed(policy: str) -> Callable[[], float]:
        return lambda: cpu_seconds(lambda: canonicalize(body, policy))

    return {policy: timed(policy) for policy in POLICIES}


def _mixed_body(size: int) -> dict[str, Any]:
    rng = random.Random(8)
    lines = [
        "Current time: 2031-03-04 10:11:12",
        "| a | b |\t ",
        '{"b": 1.10, "a": [1e400, -0]}  ',
        "```py\nx = 1  \n```",
        "> quoted  text\r",
        "- item (3h ago)",
        "<env>\ncwd: /tmp/x9k2\n</env>",
    ]
    system: list[str] = []
    length = 0
    while length < size // 2:
        system.append(rng.choice(lines) if rng.random() < 0.3 else prose(rng, 120))
        length += len(system[-1]) + 1
    record = json.dumps(
        [{"id": number, "b": prose(rng, 60), "a": number / 7} for number in range(size // 400)]
    )
    messages = [
        {"role": "system", "content": "\n".join(system)},
        {"role": "user", "content": prose(rng, size // 4)},
        {"role": "assistant", "content": None, "tool_calls": [_call()]},
        {"role": "tool", "tool_call_id": "call_1", "content": record},
    ]
    return {"model": "m", "messages": messages}


def _call() -> dict[str, Any]:
    return {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{}"}}


def _each(call: Callable[[], object]) -> Callable[[], float]:
    def repeat() -> None:
        for _ in range(_CALLS):
            call()

    return lambda: seconds(repeat) / _CALLS
