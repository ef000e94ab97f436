"""A replica that is followed and publishes nothing: the operator is told, once, with what to add at the engine."""

import asyncio
import json
import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from engine_adapters.base import ReuseReport
from engine_adapters.remote.kv_event_stream import KvEventSource
from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from engine_adapters.remote.relay import EventPublisher, RemoteCapabilities
from gateway.kv_events import follower as following
from gateway.kv_events.flags import events_flag
from gateway.kv_events.options import KvEventOptions
from gateway.kv_events.silence import ANSWERS, PATIENCE_S, Silence
from gateway.relay.remote import Remote
from gateway.replicas.pool import EnginePool
from gateway.routing.prefix_router import PrefixRouter
from tests.gateway.kv_events.publishing import publisher, stored
from tests.gateway.relay.fake_engine import MODEL, fake_engine, whole
from tests.gateway.relay.serving import Relaying, relaying
from tests.waiting import until, wait_until

WARNING = "A REPLICA PUBLISHES NO KV EVENTS: what it holds is guessed from its answers"
FLAG = (
    "--kv-events-config "
    '\'{"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "ipc://@kvgate-silent-%s"}\''
)


def report(prompt: int | None, reused: int | None) -> ReuseReport:
    return ReuseReport(prompt, reused, None, "test", "not_reported" if reused is None else "reported")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def said(silence: Silence) -> str | None:
    return silence.detail(says_none=False)


def answer(silence: Silence, given: ReuseReport | None, block: int | None = 16, times: int = ANSWERS) -> None:
    for _ in range(times):
        silence.answered(given, block)


def test_answers_that_fill_blocks_and_nothing_behind_them_is_silence(clock: Clock):
    silence = Silence(clock)
    answer(silence, report(100, 0), times=ANSWERS - 1)
    clock.now = 2 * PATIENCE_S
    assert said(silence) is None
    answer(silence, report(100, 0), times=1)
    assert said(silence) is None  # what it publishes may be on its way
    clock.now += PATIENCE_S
    assert "fill blocks" in said(silence)


@pytest.mark.parametrize(
    ("given", "block"),
    [
        (report(15, 0), 16),  # no block is full
        (report(100, 96), 16),  # all full ones were there
        (report(100, 0), None),  # blocks may be larger
        (report(None, None), 16),
        (None, 16),  # a refusal
    ],
)
def test_answers_that_store_no_block_say_nothing(clock: Clock, given: ReuseReport | None, block: int | None):
    silence = Silence(clock)
    answer(silence, given, block, times=50)
    clock.now = 1e6
    assert said(silence) is None


def test_of_an_engine_that_reports_no_reuse_the_prompts_count_until_something_came(clock: Clock):
    silence = Silence(clock)
    answer(silence, report(300, None))
    clock.now = PATIENCE_S
    assert said(silence) is not None
    silence.heard()
    answer(silence, report(300, None), times=50)  # they may all have been there
    clock.now = 1e6
    assert said(silence) is None


def test_what_comes_ends_it_and_a_replica_that_comes_back_has_to_publish_again(clock: Clock):
    silence = Silence(clock)
    answer(silence, report(300, 0))
    clock.now = PATIENCE_S
    silence.heard()
    assert said(silence) is None
    silence.begin_anew()
    answer(silence, report(300, None))
    clock.now *= 3
    assert said(silence) is not None


def test_its_own_word_is_enough_unless_something_came(clock: Clock):
    silence = Silence(clock)
    assert silence.detail(says_none=True) == "it says that it publishes none"
    silence.heard()
    assert silence.detail(says_none=True) is None


def test_the_flag_binds_where_kvgate_listens():
    assert events_flag("sglang") == '--kv-events-config \'{"publisher": "zmq", "endpoint": "tcp://*:5557"}\''
    given = events_flag("vllm", "tcp://10.0.0.5:6000", "tcp://[::1]:6001", "kv")
    assert json.loads(given.removeprefix("--kv-events-config ").strip("'")) == {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": "tcp://*:6000",
        "replay_endpoint": "tcp://*:6001",
        "topic": "kv",
    }
    assert events_flag("llama_cpp") is None


class Detected(OpenAICompatibleEngine):
    """Says of itself whether it publishes."""

    publishes: bool | None = None
    ranks = 0

    async def detect(self) -> RemoteCapabilities:
        return RemoteCapabilities(
            (MODEL,),
            None,
            block_size=16,
            kv_events=self.publishes,
            publishers=tuple(EventPublisher(f"tcp://*:{5557 + rank}") for rank in range(self.ranks)),
        )


@contextmanager
def gateway_of(unique: str, publishes: bool | None = None, ranks: int = 0) -> Iterator[Relaying]:
    def answers(connection, asked) -> None:
        connection.reply(whole(0))  # of a prompt of 20 tokens

    with fake_engine(answers) as engine:
        adapter = Detected("fake", engine.url, (MODEL,))
        adapter.publishes, adapter.ranks = publishes, ranks
        events = KvEventOptions(f"ipc://@kvgate-silent-{unique}", kind="vllm")
        pool = EnginePool("fake", [Remote(adapter, replica="fake/a")], PrefixRouter(), events=events)
        with relaying([], pools=[pool]) as gateway:
            yield gateway


def ask(gateway: Relaying, times: int = ANSWERS) -> None:
    for _ in range(times):
        body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
        assert gateway.http.post("/v1/chat/completions", json=body).status_code == 200


def silent(gateway: Relaying) -> bool:
    """As the metrics say it."""
    text = gateway.http.get("/metrics").text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return lines['kvgate_kv_events_silent{kvgate_engine="fake",kvgate_replica="fake/a"}'] == "1.0"


def warned(caplog: pytest.LogCaptureFixture) -> list[dict[str, str]]:
    return [each.fields for each in caplog.records if each.getMessage() == WARNING]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_LOOK_S", 0.02)
    monkeypatch.setattr(following, "Silence", lambda clock: Silence(clock, patience_s=0.1))


def test_where_nobody_publishes_the_log_names_what_to_add_once(caplog: pytest.LogCaptureFixture):
    unique = uuid.uuid4().hex
    caplog.set_level(logging.WARNING, "kvgate.gateway")
    with gateway_of(unique) as gateway:
        assert not silent(gateway)
        ask(gateway)
        wait_until(lambda: silent(gateway), "it is told")
        ask(gateway)
        state = gateway.served.pools[0].events.follower("fake/a").state
        assert (state.batches, state.flows, state.connected) == (0, False, False)
        assert "fill blocks" in state.silent
        assert state.add == FLAG % unique
        (fields,) = warned(caplog)
        assert fields == {
            "engine": "fake",
            "replica": "fake/a",
            "endpoint": f"ipc://@kvgate-silent-{unique}",
            "detail": state.silent,
            "connected": "no",
            "add": FLAG % unique,
        }


def test_an_engine_that_says_so_itself_is_told_of_before_any_request(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, "kvgate.gateway")
    with gateway_of(uuid.uuid4().hex, publishes=False) as gateway:
        wait_until(lambda: silent(gateway), "it is told")
        (fields,) = warned(caplog)
        assert fields["detail"] == "it says that it publishes none"


def test_a_replica_that_publishes_is_not_silent_and_one_that_begins_to_is_no_more(
    caplog: pytest.LogCaptureFixture,
):
    unique = uuid.uuid4().hex
    caplog.set_level(logging.WARNING, "kvgate.gateway")
    with gateway_of(unique) as gateway:
        ask(gateway)
        wait_until(lambda: silent(gateway), "it is told")
        with publisher(events=f"ipc://@kvgate-silent-{unique}", replay=False) as engine:
            engine.wait_for_a_listener()
            engine.publish(stored([1], range(16)))
            wait_until(lambda: not silent(gateway), "it is taken back")
            follower = gateway.served.pools[0].events.follower("fake/a")
            assert (follower.state.silent, follower.state.add) == (None, None)
            assert len(warned(caplog)) == 1


def test_what_one_of_several_caches_says_does_not_count(caplog: pytest.LogCaptureFixture):
    unique = uuid.uuid4().hex
    caplog.set_level(logging.WARNING, "kvgate.gateway")
    with (
        publisher(events=f"ipc://@kvgate-silent-{unique}", replay=False) as engine,
        gateway_of(unique, publishes=True, ranks=2) as gateway,
    ):
        wait_until(lambda: silent(gateway), "it is told")
        engine.wait_for_a_listener()
        engine.publish(stored([1], range(16)))
        follower = gateway.served.pools[0].events.follower("fake/a")
        wait_until(lambda: follower.state.batches, "it has come")
        state = follower.state
        assert (state.flows, state.add) == (False, None)
        assert state.silent == "it has 2 caches, and one of them is heard"
        assert not gateway.served.pools[0].router.events.flows("fake/a")
        assert len([each for each in caplog.records if "SEVERAL CACHES" in each.getMessage()]) == 1
        assert not warned(caplog)


async def test_what_was_believed_until_several_caches_were_known_is_forgotten():
    publishers: list[int] = []
    with publisher(replay=False) as engine:
        router = PrefixRouter()
        follower = following.Follower(
            "a",
            KvEventSource(f"tcp://127.0.0.1:{engine.port}"),
            lambda changes: router.told("a", changes),
            publishers=lambda: publishers[-1] if publishers else None,
        )
        follower.start()
        try:
            await asyncio.to_thread(engine.wait_for_a_listener)
            engine.publish(stored([1], range(16)))
            await until(lambda: router.events.flows("a") and len(router.index))
            publishers.append(2)
            await until(lambda: not router.events.flows("a"))
            assert not len(router.index)
            publishers.append(1)  # it was started anew, with one
            engine.publish(stored([1], range(16)))
            await until(lambda: router.events.flows("a") and follower.state.silent is None)
        finally:
            await follower.aclose()
