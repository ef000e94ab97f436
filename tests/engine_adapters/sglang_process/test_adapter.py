"""The child process and its protocol, with a stand-in for SGLang in the child."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import pytest

from engine_adapters.base import Finished, GenerateRequest, SamplingParams, TextDelta, Usage
from engine_adapters.errors import (
    ContextLengthError,
    EngineFailureError,
    EngineNotReadyError,
    EngineOverloadedError,
    InvalidRequestError,
)
from engine_adapters.sglang_process.adapter import SGLangProcess
from engine_adapters.sglang_process.config import SGLangConfig
from tests.processes import lives, run_python
from tests.waiting import until

STAND_IN = Path(__file__).with_name("stand_in")
BREAKS, REFUSED, FOREVER, PRINTS = 13, 14, 15, 16  # first ids that the stand-in knows


def config(model: Path, **more: object) -> SGLangConfig:
    environ = {"PYTHONPATH": str(STAND_IN)}
    return SGLangConfig(
        Path(sys.executable), model, environ=environ, start_s=300, restart_wait_s=0.01, **more
    )


def request(*ids: int, rid: str = "r", **sampling: object) -> GenerateRequest:
    prompt = np.array(ids, dtype=np.int32)
    return GenerateRequest(rid, "completions", "m", prompt, SamplingParams(**sampling), scope="tenant a")


@pytest.fixture(scope="module")
def model(tiny_model: Callable[..., Path]) -> Path:
    return tiny_model("qwen3")


@pytest.fixture
async def engine(model: Path) -> AsyncIterator[SGLangProcess]:
    adapter = await SGLangProcess.start(config(model))
    yield adapter
    await adapter.aclose()


async def text_of(engine: SGLangProcess, asked: GenerateRequest) -> str:
    return "".join([event.text async for event in engine.generate(asked) if isinstance(event, TextDelta)])


async def test_a_request_streams_deltas_then_finishes_then_says_what_was_reused(engine: SGLangProcess):
    events = [event async for event in engine.generate(request(7, 8, 9))]
    assert [event.text for event in events[:3]] == [" 7", " 8", " 9"]
    assert events[3] == Finished(0, "length")
    usage = events[4]
    assert isinstance(usage, Usage)
    assert (usage.prompt_tokens, usage.completion_tokens) == (3, 3)
    assert (usage.reuse.reused, usage.reuse.by_tier) == (3, {"device": 2, "host": 1})
    assert (usage.reuse.source, usage.reuse.status) == ("meta_info.cached_tokens", "reported")
    assert engine.capabilities().tiers == ("device", "host")


async def test_a_stop_string_is_cut_off_and_no_part_of_it_was_given_out(engine: SGLangProcess):
    events = [event async for event in engine.generate(request(7, 8, 9, stop=(" 8 9",)))]
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == " 7"
    assert Finished(0, "stop", " 8 9") in events


async def test_log_probabilities_come_once_each(engine: SGLangProcess):
    events = [event async for event in engine.generate(request(7, 8, 9, logprobs=0))]
    ids = [one.token_id for event in events if isinstance(event, TextDelta) for one in event.logprobs]
    assert ids == [0, 1, 2]


async def test_requests_run_beside_each_other(engine: SGLangProcess):
    asked = [request(20 + i, 1, 2, rid=f"r{i}") for i in range(20)]
    texts = await asyncio.gather(*(text_of(engine, each) for each in asked))
    assert texts == [f" {20 + i} 1 2" for i in range(20)]


async def test_who_stops_reading_ends_the_request_in_the_engine(engine: SGLangProcess):
    stream = engine.generate(request(FOREVER, rid="left"))
    await anext(stream)
    await stream.aclose()
    state = await engine._child.call("state")
    assert state["states"] == [{"aborted": ["left"]}]
    assert (await engine.counters())["running"] == 0


async def test_what_the_engine_refuses_is_an_invalid_request_and_the_next_one_is_served(
    engine: SGLangProcess,
):
    with pytest.raises(InvalidRequestError, match="fourteen"):
        await text_of(engine, request(REFUSED))
    assert await text_of(engine, request(7)) == " 7"


async def test_a_prompt_that_does_not_fit_never_reaches_the_engine(engine: SGLangProcess):
    with pytest.raises(ContextLengthError, match="64 tokens"):
        await text_of(engine, request(*range(63)))


async def test_ids_that_the_model_has_not_never_reach_the_engine(engine: SGLangProcess):
    for ids in ((1, 1 << 30), (1, -1)):
        with pytest.raises(InvalidRequestError, match="vocabulary"):
            await text_of(engine, request(*ids))
    assert await text_of(engine, request(7)) == " 7"


async def test_an_engine_that_prints_a_line_without_end_is_not_held_up(engine: SGLangProcess):
    assert await text_of(engine, request(PRINTS, 7)) == f" {PRINTS} 7"
    assert await text_of(engine, request(7)) == " 7"


async def test_more_requests_than_may_run_are_refused(model: Path):
    adapter = await SGLangProcess.start(config(model, max_requests=1))
    stream = adapter.generate(request(FOREVER))
    await anext(stream)
    with pytest.raises(EngineOverloadedError):
        await text_of(adapter, request(7, rid="second"))
    await stream.aclose()
    assert await text_of(adapter, request(7, rid="third")) == " 7"
    await adapter.aclose()


async def test_when_the_process_breaks_its_requests_fail_and_it_comes_again(engine: SGLangProcess):
    running = engine.generate(request(FOREVER, rid="beside"))
    await anext(running)
    with pytest.raises(EngineFailureError, match="ended"):
        await text_of(engine, request(BREAKS))
    with pytest.raises(EngineFailureError, match="ended"):
        [event async for event in running]
    await until(lambda: engine._counted["restarts"] == 1)
    assert await text_of(engine, request(7)) == " 7"
    assert (await engine.health()).ready


async def test_one_that_breaks_again_and_again_stays_down_and_says_so(model: Path):
    adapter = await SGLangProcess.start(config(model, restarts=1))
    os.kill(adapter._child.pid, signal.SIGKILL)
    await until(lambda: adapter._counted["restarts"] == 1)
    os.kill(adapter._child.pid, signal.SIGKILL)
    await until(lambda: adapter._watching.done())
    assert "in a row" in (await adapter.health()).detail
    with pytest.raises(EngineNotReadyError, match="in a row"):
        await text_of(adapter, request(7))
    await adapter.aclose()


async def test_one_that_does_not_start_says_why(model: Path):
    with pytest.raises(EngineNotReadyError, match="no such weights"):
        await SGLangProcess.start(config(model, engine={"fail": "no such weights"}))


async def test_an_interpreter_that_is_not_there_is_named(model: Path):
    with pytest.raises(EngineNotReadyError, match="/no/python"):
        await SGLangProcess.start(SGLangConfig(Path("/no/python"), model))


async def test_after_the_end_the_process_is_gone_and_nothing_is_taken(model: Path):
    adapter = await SGLangProcess.start(config(model))
    await adapter.flush()
    pid = adapter._child.pid
    await adapter.aclose()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(EngineNotReadyError):
        await text_of(adapter, request(7))


def test_the_process_dies_with_its_parent(model: Path):
    code = """
        import asyncio, os, sys
        from pathlib import Path
        from engine_adapters.sglang_process.adapter import SGLangProcess
        from engine_adapters.sglang_process.config import SGLangConfig

        async def main():
            config = SGLangConfig(Path(sys.executable), Path(sys.argv[1]), environ={"PYTHONPATH": sys.argv[2]})
            adapter = await SGLangProcess.start(config)
            print(adapter._child.pid, flush=True)
            os.kill(os.getpid(), 9)

        asyncio.run(main())
    """
    child = int(run_python(code, str(model), str(STAND_IN)).stdout)
    asyncio.run(until(lambda: not lives(child)))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child that does not listen")
def test_the_process_dies_with_its_parent_even_while_the_model_loads(model: Path, tmp_path: Path):
    code = """
        import asyncio, os, sys
        from pathlib import Path
        from engine_adapters.sglang_process.adapter import SGLangProcess
        from engine_adapters.sglang_process.config import SGLangConfig

        async def main():
            config = SGLangConfig(
                Path(sys.executable), Path(sys.argv[1]), engine={"loads": sys.argv[3]},
                environ={"PYTHONPATH": sys.argv[2]},
            )
            starting = asyncio.create_task(SGLangProcess.start(config))
            while not Path(sys.argv[3]).exists():
                await asyncio.sleep(0.01)
            print(Path(f"/proc/self/task/{os.getpid()}/children").read_text(), flush=True)
            os.kill(os.getpid(), 9)

        asyncio.run(main())
    """
    child = int(run_python(code, str(model), str(STAND_IN), str(tmp_path / "loads")).stdout)
    asyncio.run(until(lambda: not lives(child)))
