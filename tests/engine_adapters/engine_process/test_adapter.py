"""An engine behind a socket: it does what it does without one, whatever ends first."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine_adapters.base import Capabilities, Event, Finished, GenerateRequest, SamplingParams, TextDelta
from engine_adapters.engine_process.adapter import EngineInProcess
from engine_adapters.engine_process.service import EngineService
from engine_adapters.errors import (
    EngineFailureError,
    EngineNotReadyError,
    InvalidRequestError,
    UnsupportedByEngineError,
)
from engine_adapters.rpc.server import Server
from tests.gateway.scripted_engine import ScriptedEngine, byte_ids, hello, usage_of
from tests.waiting import PATIENCE_S, until


def request(number: int = 0) -> GenerateRequest:
    return GenerateRequest(f"r{number}", "chat", "m", byte_ids("a prompt"), SamplingParams())


async def endless(asked: GenerateRequest) -> AsyncIterator[Event]:
    while True:
        yield TextDelta(0, "x")
        await asyncio.sleep(0)


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "s"
    folder.mkdir(mode=0o700)
    return folder / "engine.sock"


async def serve(engine: ScriptedEngine, path: Path) -> Server:
    return await Server(EngineService(engine, {"tokenizer": "/m"}).service()).listen(path)


@pytest.fixture
async def server(engine: ScriptedEngine, path: Path) -> AsyncIterator[Server]:
    server = await serve(engine, path)
    yield server
    server.close()


class TakesMessages(ScriptedEngine):
    """Renders some chats itself."""

    def capabilities(self) -> Capabilities:
        return replace(super().capabilities(), chats_as_ids=("text",))


@pytest.mark.parametrize(("made", "gets"), [(TakesMessages, True), (ScriptedEngine, False)])
async def test_chats_go_with_their_body_to_an_engine_that_takes_some_as_messages(
    made: type[ScriptedEngine], gets: bool, path: Path
) -> None:
    engine = made()
    server = await serve(engine, path)
    adapter = await EngineInProcess.connect(path, timeout_s=PATIENCE_S)
    body = {"messages": [{"role": "user", "content": "hi"}]}
    for route in ("chat", "completions"):
        asked = replace(request(), route=route, body=body)  # type: ignore[arg-type]
        assert [event async for event in adapter.generate(asked)]
    assert [each.body for each in engine.requests] == [body if gets else {}, {}]
    await adapter.aclose()
    server.close()


@pytest.fixture
async def adapter(server: Server, path: Path) -> AsyncIterator[EngineInProcess]:
    adapter = await EngineInProcess.connect(path, timeout_s=PATIENCE_S)
    yield adapter
    await adapter.aclose()


async def drained(events: AsyncIterator[Event]) -> None:
    async for _ in events:
        pass


async def test_it_says_what_the_engine_says(adapter: EngineInProcess, engine: ScriptedEngine) -> None:
    assert adapter.capabilities() == engine.capabilities()
    assert adapter.about == {"tokenizer": "/m"}
    assert (await adapter.health()) == await engine.health()
    assert (await adapter.tokenize("abc")).tolist() == byte_ids("abc").tolist()
    assert dict(await adapter.counters()) == {}
    await adapter.flush({"device"})
    with pytest.raises(UnsupportedByEngineError):
        await adapter.purge("t")


async def test_requests_of_two_processes_run_side_by_side(
    adapter: EngineInProcess, engine: ScriptedEngine, path: Path
) -> None:
    other = await EngineInProcess.connect(path, timeout_s=PATIENCE_S)

    async def run(by: EngineInProcess, number: int) -> list[Event]:
        return [event async for event in by.generate(request(number))]

    got = await asyncio.gather(*(run((adapter, other)[n % 2], n) for n in range(20)))
    expected = [event async for event in hello(request())]
    assert got == [expected] * 20
    assert len(engine.completed) == 20
    assert np.array_equal(engine.requests[0].prompt_ids, request().prompt_ids)
    await other.aclose()


async def test_leaving_a_stream_cancels_it_in_the_engine(
    adapter: EngineInProcess, engine: ScriptedEngine
) -> None:
    engine.script = endless
    async with aclosing(adapter.generate(request())) as events:  # type: ignore[type-var]
        await anext(events)
    await until(lambda: engine.cancelled == ["r0"])


async def test_an_error_is_the_same_error(adapter: EngineInProcess, engine: ScriptedEngine) -> None:
    async def refuses(asked: GenerateRequest) -> AsyncIterator[Event]:
        raise InvalidRequestError("no", param="stop", code="bad")
        yield

    engine.script = refuses
    with pytest.raises(InvalidRequestError) as caught:
        await anext(adapter.generate(request()))
    assert (caught.value.param, caught.value.code) == ("stop", "bad")


async def test_what_breaks_in_the_engine_is_an_engine_failure(
    adapter: EngineInProcess, engine: ScriptedEngine
) -> None:
    async def breaks(asked: GenerateRequest) -> AsyncIterator[Event]:
        raise ZeroDivisionError
        yield

    engine.script = breaks
    with pytest.raises(EngineFailureError):
        await anext(adapter.generate(request()))


async def test_when_this_side_ends_its_requests_are_told_so_and_cancelled(
    adapter: EngineInProcess, engine: ScriptedEngine
) -> None:
    engine.script = endless
    events = adapter.generate(request())
    await anext(events)
    await adapter.aclose()
    with pytest.raises(EngineNotReadyError, match="shutting down"):
        await drained(events)
    await until(lambda: engine.cancelled == ["r0"])


async def test_when_the_engine_ends_requests_fail_and_the_next_ones_find_the_next_engine(
    adapter: EngineInProcess, engine: ScriptedEngine, server: Server, path: Path
) -> None:
    engine.script = endless
    events = adapter.generate(request())
    await anext(events)
    server.close()
    with pytest.raises(EngineFailureError, match="has ended"):
        await drained(events)
    await until(lambda: not adapter._link.is_there)
    assert not (await adapter.health()).ready
    with pytest.raises(EngineNotReadyError, match="started again"):
        await anext(adapter.generate(request()))
    assert adapter.capabilities() == engine.capabilities()
    again = await serve(ScriptedEngine(), path)
    await until(lambda: adapter._link.is_there)
    assert (await adapter.health()).ready
    got = [event async for event in adapter.generate(request(1))]
    assert got[-2:] == [Finished(0, "stop"), usage_of(request(1))]
    again.close()


async def test_an_engine_that_never_comes_is_not_waited_for_for_ever(path: Path) -> None:
    with pytest.raises(EngineNotReadyError):
        await EngineInProcess.connect(path, timeout_s=0.05)
