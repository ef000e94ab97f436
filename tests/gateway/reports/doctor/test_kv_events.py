"""What an engine says of its KV events is told as it said it, and what comes is heard."""

import asyncio
import importlib.util
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine_adapters.remote.relay import EventPublisher, RemoteCapabilities
from gateway.commands.doctor import command
from gateway.reports.doctor import kv_events
from gateway.reports.doctor.checkup import Check
from gateway.reports.errors import DoctorError
from tests.gateway.kv_events.publishing import Publisher, publisher, stored
from tests.gateway.reports.doctor.lying_engine import LyingEngine, served
from tests.waiting import PATIENCE_S

HERE = "http://127.0.0.1:8000"


async def check(
    found: RemoteCapabilities,
    *,
    kind: str = "vllm",
    url: str = HERE,
    asked: str | None = None,
    meanwhile: Callable[[], Any] = lambda: None,
) -> Check:
    async with kv_events.listening(kind, url, found, asked) as ear:
        await asyncio.to_thread(meanwhile)
        return await ear.check()


def able(*publishers: EventPublisher, events: bool | None = True) -> RemoteCapabilities:
    return RemoteCapabilities(("m",), True, kv_events=events, publishers=publishers)


@pytest.fixture(autouse=True)
def long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes is waited for, however slow this machine is."""
    monkeypatch.setattr(kv_events, "_LAST_S", PATIENCE_S)
    monkeypatch.setattr(kv_events, "_CONNECT_S", PATIENCE_S)


@pytest.fixture
def nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_events, "_LAST_S", 0.3)


def blocks(count: int) -> Any:
    return stored(range(count), range(count * 4))


@pytest.mark.parametrize("times", [1, 3])
async def test_what_comes_is_counted_once_where_the_engine_says_it_publishes(times: int):
    with publisher(replay=False) as events:
        found = able(*[EventPublisher(f"tcp://*:{events.port}", "kv")] * times)

        def meanwhile() -> None:
            events.wait_for_a_listener()
            events.publish(blocks(3), blocks(2))

        heard = await check(found, meanwhile=meanwhile)
    assert heard.finding == "yes"
    assert f"tcp://127.0.0.1:{events.port}: 1 batch came, 5 blocks" in heard.detail


async def test_a_socket_of_this_machine_is_heard(tmp_path: Path):
    with publisher(events=f"ipc://{tmp_path}/events", replay=False) as events:

        def meanwhile() -> None:
            events.wait_for_a_listener()
            events.publish(blocks(4))

        heard = await check(able(EventPublisher(f"ipc://{tmp_path}/events", "kv")), meanwhile=meanwhile)
    assert heard.finding == "yes"


@pytest.mark.usefixtures("nothing_comes")
async def test_silence_is_told_and_no_bad_news_unless_somebody_insists():
    with publisher(replay=False) as events:
        address = f"tcp://127.0.0.1:{events.port}"
        silent = await check(able(EventPublisher(f"tcp://*:{events.port}")))
        insisted = await check(able(), asked=address)
    assert (silent.finding, insisted.finding) == ("unknown", "no")
    assert f"It publishes at {address}, and nothing came." in silent.detail
    assert insisted.fix


@pytest.mark.usefixtures("nothing_comes")
async def test_where_nobody_publishes_no_connection_stands(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kv_events, "_CONNECT_S", 0.2)
    told = await check(able(EventPublisher("tcp://*:1")))
    assert told.finding == "unknown"
    assert "no connection stood" in told.detail


@pytest.mark.parametrize(
    ("kind", "events", "finding", "said"),
    [
        ("vllm", False, "absent", "It publishes none. To have them: --kv-events-config"),
        ("sglang", None, "unknown", "Not reported: it does not say whether it publishes any. To have them"),
        ("llama_cpp", False, "absent", "It publishes none."),
        ("openai", None, "unknown", "Not reported"),
    ],
)
async def test_an_engine_without_publishers_is_told_as_far_as_it_speaks(
    kind: str, events: bool | None, finding: str, said: str
):
    told = await check(able(events=events), kind=kind)
    assert told.finding == finding
    assert told.detail.startswith(said)


@pytest.mark.parametrize(
    ("place", "url", "said"),
    [
        (
            EventPublisher("tcp://collector:5557", binds=False),
            HERE,
            "It connects by itself to tcp://collector",
        ),
        (EventPublisher("ipc:///run/events"), "http://10.0.0.1:1", "It publishes at ipc:///run/events"),
        (EventPublisher("tcp://127.0.0.1:5557"), "http://10.0.0.1:1", "It publishes at tcp://127.0.0.1:5557"),
        (EventPublisher("tcp://10.9.9.9:5557"), "http://10.0.0.1:1", "It publishes at tcp://10.9.9.9:5557"),
        (EventPublisher("nonsense"), "http://10.0.0.1:1", "It publishes at nonsense"),
    ],
)
async def test_an_engine_s_word_leads_to_no_other_machine(
    place: EventPublisher, url: str, said: str, monkeypatch: pytest.MonkeyPatch
):
    @asynccontextmanager
    async def never(*_: Any) -> AsyncIterator[None]:
        raise AssertionError("nothing is to be listened to")
        yield

    monkeypatch.setattr(kv_events, "_listened", never)
    told = await check(able(place), url=url)
    assert told.finding == "unknown"
    assert told.detail.startswith(said)
    assert "--kv-events tcp://HOST:PORT" in told.detail


@pytest.mark.parametrize("asked", ["nonsense", "tcp://nowhere", "tcp://127.0.0.1:x"])
async def test_an_address_that_is_none_is_refused_with_its_name(asked: str):
    with pytest.raises(DoctorError, match=r"(?i)kv.events"):
        await check(able(), asked=asked)


@pytest.mark.usefixtures("nothing_comes")
async def test_nonsense_of_an_engine_s_own_stops_nothing(monkeypatch: pytest.MonkeyPatch):
    told = await check(able(EventPublisher("tcp://*:x")))
    assert told.finding == "unknown"


async def test_without_the_package_it_says_which(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    told = await check(able(EventPublisher("tcp://*:5557")))
    assert told.finding == "unknown"
    assert "kvgate[events]" in told.detail
    with pytest.raises(DoctorError, match=r"kvgate\[events\]"):
        await check(able(), asked="tcp://127.0.0.1:1")


def test_the_command_hears_what_an_examination_stores(capsys: pytest.CaptureFixture[str]):
    with publisher(replay=False) as events:
        engine = LyingEngine(
            events={"0": {"publisher": "zmq", "endpoint": f"tcp://*:{events.port}"}},
            publish=_publishing(events),
        )
        with served(engine) as url:
            code = command.run(command.DoctorOptions(url, words=64), {}, as_json=True)
    report = json.loads(capsys.readouterr().out)
    heard = next(each for each in report["checks"] if each["name"] == "events")
    assert (code, heard["finding"]) == (0, "yes")


def _publishing(events: Publisher) -> Callable[[int], None]:
    return lambda count: events.publish(blocks(count))
