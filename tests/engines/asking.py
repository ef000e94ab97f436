"""Small requests to an engine behind an adapter, for facts that hold live and replayed alike."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from canon.tokens.steps import finished
from engine_adapters.remote.http_engine import HttpEngine
from engine_adapters.remote.relay import Account, RelayRequest, Route
from gateway.routing.prompt_tokens import PromptTokens
from tests.engines.running import MODEL_NAME


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back to the client, and what the adapter read from it."""

    status: int
    body: bytes
    account: Account


def prompt_ids(fact: int, tokens: int) -> list[int]:
    """A prompt that no other fact uses: ids are valid for the default model, and none is a control token."""
    return [1000 + (fact * 7919 + i * 31) % 40_000 for i in range(tokens)]


async def ask(
    engine: HttpEngine,
    prompt: Sequence[Any] | str,
    *,
    stream: bool = False,
    asks_usage: bool = True,
    salt: str | None = None,
    route: Route = "completions",
    tokens: bool | PromptTokens = False,
    **fields: Any,
) -> Answer:
    """One greedy request of a few tokens. `tokens`: with its prompt as ids, which it is or which these make."""
    limit = "max_output_tokens" if route == "responses" else "max_tokens"
    body: dict[str, Any] = {"model": MODEL_NAME, limit: 3, "temperature": 0, **fields}
    body |= {"prompt": prompt} if route == "completions" else {}
    body |= {"messages": [{"role": "user", "content": prompt}]} if route == "chat" else {}
    body |= {"input": prompt} if route == "responses" else {}
    if stream:
        body["stream"] = True
        if asks_usage and route != "responses":
            body["stream_options"] = {"include_usage": True}
    ids = finished(tokens.steps(route, body, "")) if isinstance(tokens, PromptTokens) else None
    ids = np.array(prompt, np.int32) if tokens is True else ids
    request = RelayRequest(
        "r", route, json.dumps(body).encode(), stream, MODEL_NAME, asks_usage, salt, tokens=ids
    )
    async with engine.relay(request) as answer:
        parts = [chunk async for chunk in answer.chunks()]
        return Answer(answer.status, b"".join(parts), answer.account)
