"""A request log as careless clients send it, and the same log as somebody would have written it by hand."""

import json
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from bench.canon.texts import paragraphs

CONVERSATIONS = 12
TURNS = 5


@dataclass(frozen=True, slots=True)
class LoggedPair:
    """One request twice."""

    noisy: dict[str, Any]
    canonical: dict[str, Any]  # by hand: what changes stands in the last turn, all else is one form


def log(seed: int = 7) -> Iterator[LoggedPair]:
    """Conversations of several turns over one system prompt and one set of tools, interleaved.

    The noise: a clock and a UUID on top, tools in another order each time, schema keys in another order, line ends
    of Windows from some clients, a stray blank or blank line.
    """
    rng = random.Random(seed)
    rules, tools = (
        paragraphs(rng, 40),
        [_tool(rng, name) for name in ("search", "fetch", "mail", "plan", "note")],
    )
    histories: list[list[dict[str, Any]]] = [[] for _ in range(CONVERSATIONS)]
    now = datetime(2031, 3, 4, 10, 11, 12, tzinfo=UTC)
    for turn in range(TURNS):
        for history in histories:
            now += timedelta(seconds=rng.randrange(1, 90))
            history.append({"role": "user", "content": f"Question {turn}: {paragraphs(rng, 1)}"})
            number = uuid.UUID(int=rng.getrandbits(128), version=4)
            clock = f"Current time: {now:%Y-%m-%d %H:%M:%S}\nRequest id: {number}"
            yield LoggedPair(
                _noisy(rng, clock, rules, tools, history), _canonical(clock, rules, tools, history)
            )
            history.append({"role": "assistant", "content": paragraphs(rng, 2)})


def _noisy(
    rng: random.Random, clock: str, rules: str, tools: list[Any], history: list[dict[str, Any]]
) -> dict[str, Any]:
    text = f"{clock}\n{rules}"
    if rng.random() < 0.3:
        text = text.replace("\n", "\r\n")
    elif rng.random() < 0.3:
        text = rng.choice(("\ufeff", "\n", "")) + text + rng.choice(("\n", " \n", ""))
    mixed = [_shuffled(rng, tool) for tool in rng.sample(tools, len(tools))]
    return {"model": "m", "tools": mixed, "messages": [{"role": "system", "content": text}, *history]}


def _canonical(clock: str, rules: str, tools: list[Any], history: list[dict[str, Any]]) -> dict[str, Any]:
    last = {"role": "user", "content": f"{history[-1]['content']}\n\n{clock}"}
    ordered = sorted(tools, key=lambda tool: tool["function"]["name"])
    messages = [{"role": "system", "content": rules}, *history[:-1], last]
    return {"model": "m", "tools": ordered, "messages": messages}


def _tool(rng: random.Random, name: str) -> dict[str, Any]:
    fields = {
        f"{name}_{part}": {"type": "string", "description": paragraphs(rng, 1)} for part in ("what", "where")
    }
    schema = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    return {
        "type": "function",
        "function": {"name": name, "description": paragraphs(rng, 2), "parameters": schema},
    }


def _shuffled(rng: random.Random, tool: dict[str, Any]) -> dict[str, Any]:
    """The same tool with the keywords of its schema in another order; properties keep theirs."""
    copied: dict[str, Any] = json.loads(json.dumps(tool))
    schema = copied["function"]["parameters"]
    keys = rng.sample(list(schema), len(schema))
    copied["function"]["parameters"] = {key: schema[key] for key in keys}
    return copied
