"""How single places forget a tenant, and that one that fails holds up no other."""

import asyncio
import json
import os
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine_adapters.remote.llama_cpp import LlamaCppEngine
from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from engine_adapters.remote.relay import RelayEngine
from engine_adapters.remote.vllm import VllmEngine
from gateway.admin.places import register_places
from gateway.canonical.policies import parse_policy
from gateway.canonical.stage import CanonStage
from gateway.ledger.books import LedgerBooks
from gateway.ledger.capture import BodyCapture, CaptureSettings
from gateway.ledger.expectation import SentRequest
from gateway.ledger.opening import open_reader
from gateway.ledger.shadow import ShadowPredictor
from gateway.ledger.writer import WriterSettings
from gateway.relay.remote import Remote
from gateway.replicas.pool import EnginePool
from gateway.responses.bindings import Binding, LocalBindings
from gateway.routing.known_runs import RUN
from gateway.routing.prefix_router import PrefixRouter
from gateway.routing.prompt_tokens import PromptTokens
from gateway.routing.router import RouteAsk
from gateway.served import Served
from gateway.settings import CanonSettings
from gateway.tenants.purging import Forgotten, PurgeAsk, Purges
from gateway.transport.incoming import Incoming
from tests.gateway.ledger.rows import row
from tests.gateway.scripted_engine import BytePrompts
from tests.waiting import wait_until

ASK = PurgeAsk("a", ("a/m",))
BODY = {
    "model": "m",
    "messages": [{"role": "system", "content": "Now it is 2026-01-02T10:00:00Z.\nBe kind."}],
}


async def test_a_place_that_fails_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(_: PurgeAsk) -> Forgotten:
        raise ValueError("a prompt may stand in here")

    async def works(ask: PurgeAsk) -> Forgotten:
        return Forgotten(len(ask.scopes))

    purges = Purges()
    purges.register("one", fails)
    purges.register("two", works)
    purges.register("lead", works, once=True)
    found = await purges.here(ASK)
    assert (found["one"].complete, found["two"].count, found["lead"].count) == (False, 1, 1)
    assert "prompt" not in found["one"].detail + caplog.text
    assert list(await purges.asked("a", ["a/m"], False)) == ["one", "two"]


def test_the_memory_forgets_one_scope() -> None:
    stage = CanonStage(CanonSettings((parse_policy("full"),)))
    raw = json.dumps({**BODY, "messages": [*BODY["messages"], {"role": "user", "content": "Hello"}]}).encode()
    incoming = Incoming(json.loads(raw), raw)
    for scope in ("a/m", "b/m"):
        stage.apply(incoming, stage.policy("chat", "m", incoming), scope)
    assert stage.forget("a/m") > 0
    assert stage.forget("a/m") == 0
    assert stage.forget("b/m") > 0


async def test_nothing_of_prompts_for_engines_behind_http_is_remembered() -> None:
    class Prompts(BytePrompts):
        def forget(self) -> int:
            return 5

    ids = np.arange(2 * RUN, dtype=np.int32)
    pool = EnginePool("e", (), router := PrefixRouter(), tokens=PromptTokens(Prompts()))
    router.ended(await router.choose(RouteAsk("r", "e", "m", {}, 100, tokens=ids), ["e/a", "e/b"]), None)
    purges, canon = Purges(), CanonStage(CanonSettings(()))
    register_places(purges, Served(pools=[pool]), canon, None, None, LocalBindings())
    counts = [(await purges.here(ASK))["encodings"].count for _ in range(2)]
    assert counts == [5 + 2, 5]


@pytest.mark.parametrize(
    ("engine", "salt", "apart"),
    [
        (VllmEngine("e", "http://127.0.0.1:9"), "s", True),
        (VllmEngine("e", "http://127.0.0.1:9"), None, False),
        (LlamaCppEngine("e", "http://127.0.0.1:9"), "s", False),
        (OpenAICompatibleEngine("e", "http://127.0.0.1:9", ("m",)), "s", False),
    ],
)
async def test_only_of_engines_that_take_salts_it_is_said_that_they_keep_tenants_apart(
    engine: RelayEngine, salt: str | None, apart: bool
) -> None:
    purges, pool = Purges(), EnginePool("e", [Remote(engine)])
    register_places(purges, Served(pools=[pool]), CanonStage(CanonSettings(())), None, None, LocalBindings())
    found = (await purges.here(replace(ASK, salt=salt)))["engines"]
    assert not found.complete
    assert ("its salt keeps" in found.detail, "may find it there" in found.detail) == (apart, not apart)


def test_predictions_begin_anew() -> None:
    predictor = ShadowPredictor()
    body = {"messages": [{"role": "user", "content": "A prompt of some length. " * 40}]}
    request = SentRequest("e", "a/m", body, body, 1000, 16)
    predictor.expect(request)
    assert predictor.expect(request).predicted
    predictor.forget()
    assert predictor.expect(request).predicted == 0


async def test_responses_of_one_tenant_are_known_no_more() -> None:
    bindings = LocalBindings()
    for tenant in ("a", "a", "b"):
        await bindings.bind(tenant, f"resp_{len(bindings)}", Binding("e", "r"))
    assert await bindings.forget_tenant("a") == 2
    assert await bindings.forget_tenant("a") == 0
    assert len(bindings) == 1
    assert await bindings.find("b", "resp_2") is not None


def test_rows_that_still_wait_are_forgotten_too(tmp_path: Path) -> None:
    books = LedgerBooks(str(tmp_path / "rows.db"), {})
    for number in range(700):
        books.sink.put(row(number, "a" if number % 2 else "b"))
    assert books.forget("a") == 350
    assert books.forget("a") == 0
    books.close()
    assert {each.tenant for each in open_reader(str(tmp_path / "rows.db"), {}).rows()} == {"b"}


def test_rows_are_forgotten_though_a_busy_disk_holds_the_lock_for_long(tmp_path: Path) -> None:
    file = tmp_path / "rows.db"
    books = LedgerBooks(str(file), {})
    books.sink.put(row(1, "a"))
    assert books.forget("b") == 0
    with closing(sqlite3.connect(file, isolation_level=None)) as other, ThreadPoolExecutor(1) as pool:
        other.execute("BEGIN IMMEDIATE")
        found = pool.submit(books.forget, "a")
        time.sleep(2.5)  # longer than a row's writer waits before it tries again
        assert not found.done(), found
        other.execute("COMMIT")
        assert found.result() == 1
    books.close()


def test_rows_that_still_wait_when_their_tenant_is_forgotten_never_come_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.ledger.books._FORGET_S", -1)  # no time at all
    file = tmp_path / "rows.db"
    books = LedgerBooks(str(file), {}, writing=WriterSettings(interval_s=3600))
    for tenant in ("a", "b"):
        books.sink.put(row(1, tenant))
    assert books.forget("a") == 0
    books.close()
    assert [each.tenant for each in open_reader(str(file), {}).rows()] == ["b"]


def take(capture: BodyCapture, tenant: str, number: int) -> None:
    capture.take(f"{tenant}{number}", json.dumps({"n": number}).encode(), tenant=tenant)


def lines(folder: Path) -> list[str]:
    return [line for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]


def test_bodies_of_one_tenant_go_and_the_next_ones_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "bodies"
    capture = BodyCapture(CaptureSettings(folder, share=1.0, file_bytes=2000)).start()
    for number in range(100):
        take(capture, "a" if number % 3 else "b", number)
    wait_until(lambda: capture.counts().kept == 100, "all are written")
    assert capture.forget("a") == 66
    assert len(lines(folder)) == 34
    take(capture, "a", 1000)
    capture.close()
    assert len(lines(folder)) == 35
    assert all((file.stat().st_mode & 0o777) == 0o600 for file in folder.glob("*.jsonl"))
    assert not list(folder.glob(".bodies*"))


def test_files_that_another_process_writes_to_are_left_to_it(tmp_path: Path) -> None:
    folder = tmp_path / "bodies"
    capture = BodyCapture(CaptureSettings(folder, share=1.0)).start()
    line = '{"request":{},"id":"x","tenant":"a"}\n'
    running, gone = (
        folder / f"bodies-20260101T000000-{pid}-00000000.jsonl" for pid in (os.getppid(), 2**22 + 1)
    )
    for file in (running, gone):
        file.write_text(line)
    assert capture.forget("a") == 1
    assert running.exists()
    assert not gone.exists()
    capture.close()


def test_forgetting_while_requests_come_loses_no_line_of_others(tmp_path: Path) -> None:
    folder = tmp_path / "bodies"
    capture = BodyCapture(CaptureSettings(folder, share=1.0, file_bytes=3000)).start()

    async def both() -> None:
        async def put() -> None:
            for number in range(400):
                take(capture, "ab"[number % 2], number)
                await asyncio.sleep(0)

        async def forget() -> None:
            for _ in range(10):
                await asyncio.to_thread(capture.forget, "a")

        await asyncio.gather(put(), forget())

    asyncio.run(both())
    capture.close()
    assert sum('"tenant":"b"' in line for line in lines(folder)) == 200
    assert capture.counts().failed == 0
