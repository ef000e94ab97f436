"""Settings of SGLang that the recorded servers were not started with."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from engine_adapters.errors import EngineFailureError, UnsupportedByEngineError
from engine_adapters.remote.http_engine import HttpOptions
from engine_adapters.remote.relay import RemoteCapabilities
from engine_adapters.remote.sglang import RADIX_FLAG, SGLangEngine, without_details
from engine_adapters.remote.sglang_generate import SGLangGenerate
from engine_adapters.reuse.reading import NO_USAGE
from tests.engines.sglang_facts import detection_finds_what_the_engine_is_and_can
from tests.exchanges import Exchange, Recording, Replay, served
from tests.waiting import steadily

DETECTION = Recording.read("sglang").facts[detection_finds_what_the_engine_is_and_can.__name__]


def with_settings(path: str = "/server_info", **settings: Any) -> list[Exchange]:
    def changed(each: Exchange) -> Exchange:
        if each.path != "/server_info":
            return each
        return replace(each, path=path, chunks=(json.dumps(json.loads("".join(each.chunks)) | settings),))

    return [changed(each) for each in DETECTION]


async def detected(exchanges: list[Exchange]) -> RemoteCapabilities:
    with served(Replay(exchanges)) as url:
        return await SGLangEngine("e", url).detect()


async def test_a_server_that_reuses_nothing_is_told_so():
    assert (await detected(with_settings(disable_radix_cache=True))).missing == (RADIX_FLAG,)


@pytest.mark.parametrize(
    ("backend", "tiers"),
    [
        (None, ("device", "host")),
        ("file", ("device", "host", "disk")),
        ("mooncake", ("device", "host", "store")),
    ],
)
async def test_a_hierarchical_cache_has_its_tiers(backend: str | None, tiers: tuple[str, ...]):
    settings = {"enable_hierarchical_cache": True, "hicache_storage_backend": backend}
    assert (await detected(with_settings(**settings))).tiers == tiers


async def test_an_older_server_is_asked_by_the_older_name():
    found = await detected(with_settings("/get_server_info", page_size=64))
    assert (found.block_size, found.reports_reuse) == (64, True)


class SlowToDescribeItself(Replay):
    """Puts together what it says of its routes when it is first asked, which takes seconds on a busy machine."""

    async def __call__(self, request: Request) -> Response:
        if request.url.path == "/openapi.json":
            await asyncio.sleep(1.5)
        return await super().__call__(request)


async def test_what_a_server_says_of_its_routes_is_waited_for():
    async def detect() -> None:
        with served(SlowToDescribeItself(DETECTION)) as url:
            engine = SGLangEngine("e", url, options=HttpOptions(probe_s=1))
            assert (await engine.detect()).takes_salt is True
            await engine.aclose()

    await steadily(detect, within=2.5)  # what it says of its routes, and less than other answers may take


async def test_a_server_that_streams_incrementally_is_refused_natively():
    exchanges = with_settings(incremental_streaming_output=True) * 2
    with served(Replay(exchanges)) as url, pytest.raises(UnsupportedByEngineError, match="incremental"):
        await SGLangGenerate.open(SGLangEngine("e", url))


async def test_a_flush_that_running_requests_prevent_is_told():
    refused = Exchange("POST", "/flush_cache", None, 400, "text/plain", ("Flush cache failed.",))
    with served(Replay([refused])) as url, pytest.raises(EngineFailureError, match="requests run"):
        await SGLangEngine("e", url).flush()


@pytest.mark.parametrize(
    ("payload", "passed"),
    [
        ({"choices": [], "usage": None, "sglext": {}}, None),
        ({"choices": [1], "sglext": {}}, {"choices": [1]}),
        ({"choices": [], "usage": {"a": 1}, "sglext": {}}, {"choices": [], "usage": {"a": 1}}),
        ({"choices": [], "usage": {"a": 1}}, {"choices": [], "usage": {"a": 1}}),
    ],
)
def test_details_are_taken_out_and_nothing_else(payload: dict[str, Any], passed: dict[str, Any] | None):
    def marked(given: Mapping[str, Any], _: Any) -> Mapping[str, Any]:
        return {**given, "seen": True}

    assert without_details(None)(payload, NO_USAGE) == passed
    assert without_details(marked)(payload, NO_USAGE) == (None if passed is None else passed | {"seen": True})
