"""What operators are shown of engines: all that was found out of each, and null where it was not."""

import asyncio
from hashlib import sha256
from typing import Any

import httpx

from engine_adapters.base import Health, ReuseReport
from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from engine_adapters.remote.relay import RemoteCapabilities
from gateway.admin.app import AdminApp, AdminParts
from gateway.admin.options import AdminOptions
from gateway.relay.remote import Remote
from gateway.replicas.pool import EnginePool
from gateway.served import Backend, Served
from tests.gateway.scripted_engine import BytePrompts, ScriptedEngine

KEY = "an-admin-key-of-16"


def shown(remote: Remote) -> dict[str, Any]:
    return engine_of(Served(pools=[EnginePool("e", [remote])]))["replicas"][0]


def engine_of(served: Served) -> dict[str, Any]:
    parts: Any = AdminParts(served, None, None, None, None)  # type: ignore[arg-type]
    app = AdminApp(AdminOptions("127.0.0.1", 0, sha256(KEY.encode()).digest()), parts).app

    async def asked() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://a") as client:
            return await client.get("/admin/engines", headers={"x-api-key": KEY})

    (engine,) = asyncio.run(asked()).json()["engines"]
    return engine


def test_what_an_engine_can_is_shown() -> None:
    remote = Remote(OpenAICompatibleEngine("e", "http://127.0.0.1:9"))
    remote.able = RemoteCapabilities(
        ("m",),
        False,
        missing=("--flag",),
        block_size=16,
        tiers=("device", "host"),
        kv_events=True,
        version="1",
    )
    assert shown(remote)["able"] == {
        "version": "1",
        "reports_reuse": False,
        "missing": ["--flag"],
        "block_size": 16,
        "context_length": None,
        "tiers": ["device", "host"],
        "takes_salt": None,
        "takes_token_ids": None,
        "as_ids": [],
        "kv_events": True,
    }


def test_of_an_engine_that_has_not_answered_nothing_is_known() -> None:
    assert shown(Remote(OpenAICompatibleEngine("e", "http://127.0.0.1:9")))["able"] is None


def test_what_its_answers_said_of_reuse_is_shown_and_unknown_before_they_came() -> None:
    remote = Remote(OpenAICompatibleEngine("e", "http://127.0.0.1:9"))
    assert shown(remote)["reuse_in_answers"] == {"answers": 0, "reported": 0, "verdict": "unknown"}
    remote.answered(ReuseReport(20, 0, None, "usage", "reported"))
    remote.answered(ReuseReport(20, None, None, "", "not_reported"))
    assert shown(remote)["reuse_in_answers"] == {"answers": 2, "reported": 1, "verdict": "reports"}


def test_of_the_engine_in_this_process_it_is_said_what_is_wrong_below_it() -> None:
    engine = ScriptedEngine()
    engine.ready = Health(True, "ready; the disk tier hangs and is not read")
    assert engine_of(Served(Backend(engine, BytePrompts())))["health"] == engine.ready.detail
