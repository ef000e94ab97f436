"""Through the gateway: a replica that says what it has lost is not expected to have it."""

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from gateway.kv_events.options import KvEventOptions
from gateway.relay.remote import Remote
from gateway.replicas.pool import EnginePool
from gateway.routing import told
from gateway.routing.prefix_router import PrefixRouter
from gateway.routing.prompt_tokens import PromptTokens
from tests.gateway.kv_events.publishing import Publisher, publisher, removed, stored
from tests.gateway.relay.fake_engine import MODEL, FakeEngine, fake_engine
from tests.gateway.relay.serving import Relaying, relaying
from tests.gateway.scripted_engine import BytePrompts
from tests.waiting import wait_until

SYSTEM = "You know all there is to know of tides, winds and currents. " * 60
BLOCK = 128  # as vLLM has on a CPU


def answers(connection, asked) -> None:
    """Says nothing of reuse."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}
    connection.reply(json.dumps({"id": "c", "choices": [choice]}).encode())


def tokens_of(*turns: str) -> list[int]:
    messages = [("system", SYSTEM), *(("user", turn) for turn in turns)]
    return list("".join(f"{role}: {content}\n" for role, content in messages).encode())


@dataclass(slots=True)
class Clock:
    """Goes on by itself, and further where a test says so."""

    ahead_s: float = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead_s


@dataclass(slots=True)
class Fleet:
    gateway: Relaying
    publishers: dict[str, Publisher]
    router: PrefixRouter
    clock: Clock  # the router's

    def ask(self, *turns: str) -> tuple[str, list[object]]:
        """Who answered, and what was thought of it."""
        messages = [{"role": "system", "content": SYSTEM}]
        messages += [{"role": "user", "content": turn} for turn in turns]
        count = len(self.gateway.rows.kept)
        answer = self.gateway.http.post("/v1/chat/completions", json={"model": MODEL, "messages": messages})
        assert answer.status_code == 200, answer.text
        row = self.gateway.rows.last(count + 1)
        return row.replica, json.loads(row.route_scores)[row.replica]

    def flows(self, replica: str) -> bool:
        return self.router.events.flows(replica)


@contextmanager
def fleet() -> Iterator[Fleet]:
    with ExitStack() as stack:
        engines: list[FakeEngine] = [stack.enter_context(fake_engine(answers)) for _ in range(2)]
        publishers, remotes = {}, []
        for name, engine in zip("ab", engines, strict=True):
            unique = f"{uuid.uuid4().hex}-{name}"  # among all that test here at once
            made = stack.enter_context(publisher(events=f"ipc://@kvgate-test-{unique}", replay=False))
            publishers[unique] = made
            adapter = OpenAICompatibleEngine("fake", engine.url, (MODEL,))
            remotes.append(Remote(adapter, replica=f"fake/{unique}"))
        clock = Clock()
        router = PrefixRouter(clock=clock)
        events = KvEventOptions("ipc://@kvgate-test-{name}")
        pool = EnginePool("fake", remotes, router, tokens=PromptTokens(BytePrompts()), events=events)
        gateway = stack.enter_context(relaying([], pools=[pool]))
        for each in publishers.values():
            each.wait_for_a_listener()
        named = {f"fake/{name}": each for name, each in publishers.items()}
        yield Fleet(gateway, named, router, clock)


@pytest.fixture
def two() -> Iterator[Fleet]:
    with fleet() as made:
        yield made


def test_what_a_replica_evicts_is_not_predicted_there_any_more(two: Fleet) -> None:
    where, _ = two.ask("One")
    ids = tokens_of("One")
    blocks = len(ids) // BLOCK
    names = list(range(1, blocks + 1))
    two.publishers[where].publish(stored(names, ids[: blocks * BLOCK]))
    wait_until(lambda: two.flows(where), "events flow")
    again, (predicted, *_) = two.ask("One", "Two")
    assert again == where
    assert predicted >= blocks * BLOCK // 16 * 16 - 16
    two.publishers[where].publish(removed(names[4:]))
    wait_until(lambda: two.router.index.tokens(where) <= 5 * BLOCK, "the eviction is known")
    _, (fallen, *_) = two.ask("One", "Three")
    assert fallen <= 4 * BLOCK
    two.publishers[where].publish(removed(names[:4]))
    line = 'kvgate_kv_events_total{kind="removed",kvgate_engine="fake"} 2.0'
    wait_until(lambda: line in two.gateway.http.get("/metrics").text, "it is counted")


def test_what_was_sent_counts_until_the_replica_should_have_said_it(
    two: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(told, "_BRIDGE_S", 600.0)
    where, _ = two.ask("One")
    ids = tokens_of("One")
    two.publishers[where].publish(stored([1, 2, 3, 4], ids[: 4 * BLOCK]))
    wait_until(lambda: two.flows(where), "events flow")
    _, (bridged, *_) = two.ask("One", "Two")
    assert bridged > 3000
    two.clock.ahead_s = 1000.0  # the bridge is over
    _, (predicted, *_) = two.ask("One", "Two")
    assert predicted <= 4 * BLOCK


def test_metrics_and_the_admin_app_say_whether_events_flow(two: Fleet) -> None:
    where, _ = two.ask("One")
    two.publishers[where].publish(stored([1, 2], tokens_of("One")[: 2 * BLOCK]))
    wait_until(lambda: two.flows(where), "events flow")
    text = two.gateway.http.get("/metrics").text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    flow = {name: value for name, value in lines.items() if name.startswith("kvgate_kv_events_flow{")}
    assert sorted(flow.values()) == ["0.0", "1.0"]
    assert next(value for name, value in flow.items() if where in name) == "1.0"
    assert lines['kvgate_kv_events_total{kind="stored",kvgate_engine="fake"}'] == "1.0"
    assert lines['kvgate_kv_event_gaps_total{kvgate_engine="fake"}'] == "0.0"
    follower = two.gateway.served.pools[0].events.follower(where)
    assert (follower.state.connected, follower.state.flows) == (True, True)
