"""Detection and flushing where vLLM is older, sparer or busier than the recorded one."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from starlette.requests import Request
from starlette.responses import Response

from engine_adapters.errors import EngineFailureError, EngineNotReadyError
from engine_adapters.remote.http_engine import HttpOptions
from engine_adapters.remote.vllm import DETAILS_FLAG, VllmEngine
from tests.engines.vllm_facts import detection_finds_what_the_engine_is_and_can
from tests.exchanges import Exchange, Recording, Replay, served
from tests.waiting import steadily

DETECTION = Recording.read("vllm").facts[detection_finds_what_the_engine_is_and_can.__name__]


@contextmanager
def server(*exchanges: Exchange) -> Iterator[str]:
    with served(Replay(list(exchanges))) as url:
        yield url


def only(*paths: str) -> list[Exchange]:
    return [each for each in DETECTION if each.path in paths]


async def test_without_a_probe_no_token_is_generated_and_reporting_is_not_known():
    with server(*only("/v1/models", "/metrics", "/openapi.json", "/version", "/kv_event_sources")) as url:
        found = await VllmEngine("e", url, probe=False).detect()
    assert found.reports_reuse is None
    assert found.missing == ()
    assert found.block_size == 128


async def test_a_server_that_says_little_is_taken_with_what_it_says():
    with server(*only("/v1/models")) as url:
        found = await VllmEngine("e", url, probe=False).detect()
    assert (found.models, found.context_length) == (("smollm2",), 4096)
    assert (found.version, found.block_size, found.takes_salt, found.kv_events, found.tiers) == (
        None,
        None,
        None,
        None,
        (),
    )


async def test_an_older_server_that_leaves_out_a_zero_reports_with_the_second_try():
    probe = next(each for each in DETECTION if each.path == "/v1/completions")
    answer = json.loads("".join(probe.chunks))
    answer["usage"]["prompt_tokens_details"] = None
    first = replace(probe, chunks=(json.dumps(answer),))
    answer["usage"]["prompt_tokens_details"] = {"cached_tokens": 128}
    second = replace(probe, chunks=(json.dumps(answer),))
    with server(*only("/v1/models", "/metrics"), first, second) as url:
        assert (await VllmEngine("e", url).detect()).reports_reuse is True
    with server(*only("/v1/models", "/metrics"), first, first) as url:
        found = await VllmEngine("e", url).detect()
    assert found.reports_reuse is False
    assert found.missing == (DETAILS_FLAG,)


class Slow(Replay):
    """Its first token takes longer than its metrics."""

    async def __call__(self, request: Request) -> Response:
        if request.url.path == "/v1/completions":
            await asyncio.sleep(3.5)
        return await super().__call__(request)


async def test_a_first_token_that_takes_longer_than_metrics_may_is_waited_for():
    async def detect() -> None:
        with served(Slow(list(DETECTION))) as url:
            assert (await VllmEngine("e", url, options=HttpOptions(probe_s=2)).detect()).reports_reuse is True

    await steadily(detect, within=5.4)  # its first token, and less than what its metrics may take


async def test_a_server_without_completions_is_not_known_to_report():
    with server(*only("/v1/models", "/metrics")) as url:
        assert (await VllmEngine("e", url).detect()).reports_reuse is None


async def test_a_reset_that_running_requests_prevent_is_told():
    refused = Exchange("POST", "/reset_prefix_cache", None, 200, "application/json", ('{"success":false}',))
    with server(refused) as url, pytest.raises(EngineFailureError, match="running requests"):
        await VllmEngine("e", url).flush()


async def test_one_that_is_not_there_is_not_ready():
    engine = VllmEngine("e", "http://127.0.0.1:9")
    with pytest.raises(EngineNotReadyError):
        await engine.detect()
    assert not (await engine.health()).ready
