"""`sglang.Engine` itself in a process of its own."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from engine_adapters.base import Finished, GenerateRequest, GrammarSpec, SamplingParams, TextDelta, Usage
from engine_adapters.errors import ContextLengthError, EngineFailureError
from engine_adapters.sglang_process.adapter import SGLangProcess
from engine_adapters.sglang_process.config import SGLangConfig
from tests.engines.asking import prompt_ids
from tests.engines.running import engine_python
from tests.requirements import require_that

pytestmark = [pytest.mark.engines, pytest.mark.asyncio(loop_scope="module")]

ON_A_CPU = {
    "device": "cpu",
    "dtype": "float32",
    "attention_backend": "torch_native",
    "disable_overlap_schedule": True,
    "mem_fraction_static": 0.2,
    "max_total_tokens": 20000,
    "constrained_json_disable_any_whitespace": True,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(smollm2_folder: Path) -> AsyncIterator[SGLangProcess]:
    python = engine_python("sglang", "KVGATE_SGLANG_SERVER_PYTHON")
    require_that(python.exists(), "SGLang is not in place: tests/engines/sglang.sh puts it there")
    environ = {"SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    adapter = await SGLangProcess.start(
        SGLangConfig(python, smollm2_folder, engine=ON_A_CPU, environ=environ)
    )
    yield adapter
    pid = adapter._child.pid
    await adapter.aclose()
    assert not _alive_in_group(pid)


def request(prompt: list[int], scope: str = "a", rid: str = "r", **sampling: object) -> GenerateRequest:
    params = SamplingParams(**{"temperature": 0.0, "max_tokens": 3, **sampling})
    return GenerateRequest(rid, "completions", "m", np.array(prompt, dtype=np.int32), params, scope=scope)


async def answer(engine: SGLangProcess, asked: GenerateRequest) -> tuple[str, Usage]:
    events = [event async for event in engine.generate(asked)]
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    usage = events[-1]
    assert isinstance(usage, Usage)
    return text, usage


async def test_what_it_is(engine: SGLangProcess) -> None:
    found = engine.capabilities()
    assert (found.context_length, found.block_size, found.tiers) == (8192, 1, ("device",))
    assert (await engine.health()).ready


async def test_a_full_hit_is_all_but_the_last_token_and_by_tier(engine: SGLangProcess) -> None:
    prompt = prompt_ids(70, 300)
    _, first = await answer(engine, request(prompt))
    _, again = await answer(engine, request(prompt))
    assert (first.reuse.prompt, first.reuse.reused, first.reuse.status) == (300, 0, "reported")
    assert (again.reuse.reused, again.reuse.by_tier) == (299, {"device": 299, "host": 0})
    assert again.completion_tokens == 3


async def test_scopes_share_nothing(engine: SGLangProcess) -> None:
    prompt = prompt_ids(71, 300)
    for scope in ("a", "b"):
        assert (await answer(engine, request(prompt, scope)))[1].reuse.reused == 0
    assert (await answer(engine, request(prompt, "b")))[1].reuse.reused == 299


async def test_a_stop_string_is_cut_off(engine: SGLangProcess) -> None:
    prompt = prompt_ids(72, 50)
    whole, _ = await answer(engine, request(prompt, max_tokens=12))
    stop = whole[4:7]
    events = [event async for event in engine.generate(request(prompt, max_tokens=12, stop=(stop,)))]
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert text == whole[: whole.index(stop)]
    assert Finished(0, "stop", stop) in events


async def test_several_answers_and_their_log_probabilities(engine: SGLangProcess) -> None:
    asked = request(prompt_ids(73, 50), n=2, logprobs=2, temperature=1.0)
    events = [event async for event in engine.generate(asked)]
    for index in (0, 1):
        deltas = [event for event in events if isinstance(event, TextDelta) and event.index == index]
        logprobs = [one for delta in deltas for one in delta.logprobs]
        assert len(logprobs) == 3
        assert all(one.logprob <= 0 and len(one.top) == 2 for one in logprobs)
    assert events[-1].completion_tokens == 6


async def test_a_grammar_is_kept_to(engine: SGLangProcess) -> None:
    schema = '{"type": "object", "properties": {"n": {"type": "boolean"}}, "required": ["n"]}'
    asked = request(prompt_ids(74, 20), max_tokens=60, grammar=GrammarSpec("json_schema", schema))
    text, _ = await answer(engine, asked)
    assert json.loads(text)["n"] in (True, False)


async def test_who_stops_reading_ends_the_request_in_the_engine(engine: SGLangProcess) -> None:
    stream = engine.generate(request(prompt_ids(75, 20), rid="left", max_tokens=5000, ignore_eos=True))
    await anext(stream)
    await stream.aclose()
    async with asyncio.timeout(60):
        while True:
            try:
                await engine.flush()  # refused while anything runs
                break
            except EngineFailureError:
                await asyncio.sleep(0.5)


async def test_a_flush_makes_everything_new(engine: SGLangProcess) -> None:
    prompt = prompt_ids(76, 300)
    await answer(engine, request(prompt))
    await engine.flush()
    assert (await answer(engine, request(prompt)))[1].reuse.reused == 0


async def test_a_prompt_that_is_too_long_is_refused(engine: SGLangProcess) -> None:
    with pytest.raises(ContextLengthError):
        await answer(engine, request(prompt_ids(77, 8192)))


def _alive_in_group(group: int) -> list[str]:
    """Processes of a group that have not ended; ended ones may wait for a parent that never asks."""
    stats = [_stat(path) for path in Path("/proc").glob("[0-9]*/stat")]
    return [" ".join(fields) for fields in stats if fields[2:3] == [str(group)] and fields[0] != "Z"]


def _stat(path: Path) -> list[str]:
    """State, parent and group of a process; empty where it has gone meanwhile."""
    try:
        return path.read_text().rsplit(")", 1)[1].split()[:3]
    except OSError:
        return []
