"""Chats as the bench sends them."""

import random

import orjson

from bench.canon.texts import prose

MODEL = "bench-model"
_SIZE = 1024  # bytes of one body
_SYSTEM = 400  # characters that all chats share


def chats(count: int, seed: int = 7) -> list[bytes]:
    """Bodies of 1 KB: one system prompt, and a question that no other has."""
    rng = random.Random(seed)
    system = {"role": "system", "content": prose(rng, _SYSTEM)}
    return [_chat(system, rng, number) for number in range(count)]


def _chat(system: dict[str, str], rng: random.Random, number: int) -> bytes:
    empty = len(_body([system, {"role": "user", "content": f"{number}: "}]))
    question = {"role": "user", "content": f"{number}: {prose(rng, _SIZE - empty)}".replace("\n", " ")}
    return _body([system, question])


def _body(messages: list[dict[str, str]]) -> bytes:
    return orjson.dumps({"model": MODEL, "messages": messages, "temperature": 0.5})


def stream_chat(chunks: int, pause_ms: float) -> bytes:
    """A chat that the bench's upstream answers with so many chunks, one every `pause_ms`."""
    body = orjson.loads(chats(1)[0])
    return orjson.dumps({**body, "stream": True, "bench_chunks": chunks, "bench_pause_ms": pause_ms})
