"""Every fact about vLLM and SGLang, on the real servers, with and without the flags that matter."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from engine_adapters.remote.kv_event_stream import KvEventSource, KvEventStream
from engine_adapters.remote.kv_events import AllCleared, BlocksStored, KvEventBatch
from engine_adapters.remote.prometheus import labelled
from engine_adapters.remote.relay import RelayRequest
from tests.engines.asking import ask, prompt_ids
from tests.engines.record import SESSIONS, Session
from tests.engines.running import MODEL_NAME

pytestmark = pytest.mark.engines

Served = tuple[Session, str, Path]
Fact = Callable[[Any], Awaitable[None]]

FACTS = [(session.name, fact) for session in SESSIONS for fact in session.facts]
WITH_EVENTS = [session.name for session in SESSIONS if not session.name.endswith("_bare")]
RUNNING = {"vllm": "vllm:num_requests_running", "sglang": "sglang:num_running_reqs"}


@pytest.mark.parametrize(
    ("session_url", "fact"),
    FACTS,
    indirect=["session_url"],
    ids=lambda given: given if isinstance(given, str) else given.__name__,
)
async def test_the_fact_holds(session_url: Served, fact: Fact) -> None:
    session, url, _ = session_url
    engine = session.adapter("real", url)
    try:
        await fact(engine)
    finally:
        await engine.aclose()


@pytest.mark.parametrize("session_url", WITH_EVENTS, indirect=True)
async def test_its_events_tell_what_its_cache_holds(session_url: Served) -> None:
    session, url, folder = session_url
    engine = session.adapter("real", url)
    source = KvEventSource(f"ipc://{folder}/events", "kv", f"ipc://{folder}/replay")
    prompt, after = prompt_ids(50, 300), prompt_ids(51, 140)
    await ask(engine, prompt)
    await ask(engine, prompt, salt="tenant a")
    await engine.flush()
    await ask(engine, after)
    events: list[Any] = []
    async with KvEventStream(source) as stream, asyncio.timeout(60):
        items = aiter(stream)
        following = asyncio.ensure_future(anext(items))
        await asyncio.sleep(0.5)  # what was published before comes again with the first batch
        await ask(engine, prompt_ids(52, 300))
        while not any(_holds(event, prompt_ids(52, 300)) for event in events):
            batch = await following
            assert isinstance(batch, KvEventBatch), "all batches are there"
            events += batch.events
            following = asyncio.ensure_future(anext(items))
        following.cancel()
    await engine.aclose()
    plain, salted = (_first(events, prompt, salt) for salt in (None, "tenant a"))
    assert set(plain.hashes).isdisjoint(salted.hashes)
    assert any(isinstance(event, AllCleared) for event in events)
    assert stream.malformed == 0


@pytest.mark.parametrize("session_url", WITH_EVENTS, indirect=True)
async def test_who_stops_reading_ends_the_request_in_the_engine(session_url: Served) -> None:
    session, url, _ = session_url
    engine = session.adapter("real", url)
    body = b'{"model":"smollm2","prompt":"Count:","max_tokens":3000,"ignore_eos":true,"stream":true}'
    async with engine.relay(RelayRequest("r", "completions", body, True, MODEL_NAME)) as answer:
        await anext(answer.chunks())
    async with asyncio.timeout(120):
        while sum(labelled(await engine.counters(), RUNNING[session.name]).values()):  # noqa: ASYNC110
            await asyncio.sleep(1)
    assert answer.account.ended is False
    assert answer.account.reuse.status == "not_reported"
    await engine.aclose()


def _holds(event: Any, prompt: list[int]) -> bool:
    return isinstance(event, BlocksStored) and list(event.token_ids[:100]) == prompt[:100]


def _first(events: list[Any], prompt: list[int], salt: str | None) -> BlocksStored:
    return next(event for event in events if _holds(event, prompt) and event.salt == salt)
