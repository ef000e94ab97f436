"""Clients that each break the prefix in their own way share it under `full`, through the real server and SDK."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.end_to_end.conftest import Serving, serving

TEMPLATE = Path(__file__).parent.parent / "canon" / "data" / "hermes.jinja"
RULES = "\n".join(f"Rule {n}: answer in one sentence, and never promise a date." for n in range(12))
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Looks up {name} of the shop.",
            "parameters": {"type": "object", "properties": {"article": {"type": "string"}}},
        },
    }
    for name in ("articles", "customers", "orders", "stock")
]


@pytest.fixture(scope="module")
def rewriting(tiny_model: Callable[[str], Path]) -> Iterator[Serving]:
    model = str(tiny_model("qwen3"))
    with serving("--model", model, "--chat-template", str(TEMPLATE), "--canon-policy", "full") as it:
        yield it


class Client:
    """A client with a clock on top of its system text and tools in another order each time."""

    def __init__(self, sdk: openai.OpenAI, name: str, policy: str | None = None, seed: int = 0) -> None:
        self._sdk = sdk
        self._name = name
        self._headers = {"x-kvgate-policy": policy} if policy else {}
        self._dice = random.Random(f"{name} {seed}")
        self.messages: list[Any] = []

    def ask(self, text: str, time: str, *, stream: bool = False) -> openai.types.CompletionUsage:
        """One turn; the model's answer joins the history."""
        self.messages.append({"role": "user", "content": text})
        system = f"Current time: 2031-03-04 {time}\nYou are the help desk of {self._name}.\n{RULES}"
        request: Any = {
            "model": self._sdk.models.list().data[0].id,
            "messages": [{"role": "system", "content": system}, *self.messages],
            "tools": self._dice.sample(TOOLS, len(TOOLS)),
            "tool_choice": "none",
            "max_tokens": 8,
            "temperature": 1,
            "seed": self._dice.randrange(1 << 20),
            "extra_headers": self._headers,
        }
        if not stream:
            answer = self._sdk.chat.completions.create(**request)
            self.messages.append({"role": "assistant", "content": answer.choices[0].message.content})
            assert answer.usage is not None
            return answer.usage
        text, usage = "", None
        for chunk in self._sdk.chat.completions.create(
            **request, stream=True, stream_options={"include_usage": True}
        ):
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
            usage = chunk.usage or usage
        self.messages.append({"role": "assistant", "content": text})
        assert usage is not None
        return usage


def cached(usage: openai.types.CompletionUsage) -> int:
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens is not None
    return usage.prompt_tokens_details.cached_tokens


def test_two_clients_with_clocks_and_shuffled_tools_share_what_they_have_in_common(
    rewriting: Serving,
) -> None:
    apart = [Client(rewriting.client(), "a shop", "off", seed) for seed in range(2)]
    apart[0].ask("How many bells are left?", "10:11:12")
    lost = apart[1].ask("Where is my parcel?", "10:15:40")
    together = [Client(rewriting.client(), "the shop", seed=seed) for seed in range(2)]
    together[0].ask("How many bells are left?", "10:11:12")
    gained = together[1].ask("Where is my parcel?", "10:15:40")
    assert cached(lost) < 0.2 * lost.prompt_tokens
    assert cached(gained) > 0.8 * gained.prompt_tokens


@pytest.mark.parametrize("stream", [False, True])
def test_a_conversation_under_a_running_clock_reuses_all_of_its_turns(
    rewriting: Serving, stream: bool
) -> None:
    client = Client(rewriting.client(), f"another shop {stream}")
    before = client.ask("How many bells are left?", "10:11:12", stream=stream)
    for n, time in enumerate(("10:15:40", "10:15:40", "10:21:00")):
        usage = client.ask(f"And how many of kind {n}?", time, stream=stream)
        assert cached(usage) >= before.prompt_tokens - 16
        before = usage


def test_two_conversations_that_begin_alike_each_reuse_their_own(rewriting: Serving) -> None:
    clients = [Client(rewriting.client(), "a third shop", seed=seed) for seed in range(2)]
    first = [client.ask("Good morning", f"10:1{n}:12") for n, client in enumerate(clients)]
    second = [client.ask("And now?", f"10:1{n}:30") for n, client in enumerate(clients)]
    assert len({client.messages[1]["content"] for client in clients}) == 2
    for before, usage in zip(first, second, strict=True):
        assert cached(usage) >= before.prompt_tokens - 16
