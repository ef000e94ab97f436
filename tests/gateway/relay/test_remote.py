"""What an engine can is found out when it is there, told loudly where it cannot, and found out again."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping

import pytest

from engine_adapters.base import Health
from engine_adapters.errors import EngineNotReadyError
from engine_adapters.remote.relay import RelayEngine, RemoteCapabilities
from gateway.relay.remote import LookOptions, Remote
from tests.waiting import PATIENCE_S


class Asked(RelayEngine):
    """Answers what the test says, one thing after another; the last one for good."""

    name = "engine-1"

    def __init__(self, *answers: RemoteCapabilities | Exception) -> None:
        self._answers = list(answers)
        self._count = len(answers)
        self.times = 0
        self.asked = defaultdict(asyncio.Event)  # by how often
        self.closed = False

    async def detect(self) -> RemoteCapabilities:
        self.times += 1
        self.asked[self.times].set()
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def relay(self, request, rewrites=None):
        raise NotImplementedError

    async def counters(self) -> Mapping[str, float]:
        return {}

    async def health(self) -> Health:
        """Away after each answer but the last."""
        return Health(False, "away") if self.times < self._count else Health(True, "ready")

    async def flush(self) -> None:
        return None

    async def aclose(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.relay.remote._FIRST_WAIT_S", 0.001)
    for name in ("_SHORTEST_S", "_AGAIN_S"):
        monkeypatch.setattr(f"gateway.relay.remote.{name}", 0.0005)


QUICK = LookOptions(every_s=0.001, misses=1)


async def asked_times(engine: Asked, remote: Remote, times: int) -> None:
    remote.start()
    async with asyncio.timeout(PATIENCE_S):
        await engine.asked[times].wait()
        await asyncio.sleep(0)  # what came of it is told by then
    await remote.aclose()
    assert engine.closed


ABLE = RemoteCapabilities(("m",), True, block_size=16, context_length=100, takes_salt=False)


async def test_an_engine_is_asked_until_it_answers(caplog: pytest.LogCaptureFixture) -> None:
    engine = Asked(EngineNotReadyError("it does not answer"), EngineNotReadyError("it does not answer"), ABLE)
    remote = Remote(engine, look=QUICK)
    assert remote.models == {}
    with caplog.at_level(logging.INFO, "kvgate.gateway"):
        await asked_times(engine, remote, 3)
    assert dict(remote.models) == {"m": "m"}
    assert (remote.block_size, remote.context_length) == (16, 100)
    told = [record.getMessage() for record in caplog.records]
    assert told == ["an engine is not there yet; it is asked again", "an engine is there"]
    found = caplog.records[-1].fields
    assert (found["block_size"], found["context"], found["salt"], found["kv_events"]) == (
        16,
        100,
        "no",
        "unknown",
    )


async def test_an_engine_that_cannot_report_is_told_of_loudly_with_the_flag_it_needs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = Asked(RemoteCapabilities(("m",), False, ("--enable-cache-report (usage)",)))
    await asked_times(engine, Remote(engine, look=QUICK), 1)
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "DOES NOT REPORT" in warning.getMessage()
    assert warning.fields == {"engine": "engine-1", "missing": "--enable-cache-report (usage)"}


async def test_an_engine_that_was_started_anew_is_told_of_again(caplog: pytest.LogCaptureFixture) -> None:
    engine = Asked(ABLE, RemoteCapabilities(("m",), False, ("--flag",)), ABLE)
    remote = Remote(engine, look=QUICK)
    with caplog.at_level(logging.INFO, "kvgate.gateway"):
        await asked_times(engine, remote, 3)
    told = [record.getMessage() for record in caplog.records]
    assert [told.count(message) for message in ("an engine is there", "an engine has gone")] == [3, 2]
    assert remote.able == ABLE


async def test_an_answer_in_no_known_form_does_not_end_the_asking() -> None:
    engine = Asked(KeyError("data"), ABLE)
    remote = Remote(engine, {"public": "m"}, look=QUICK)
    await asked_times(engine, remote, 2)
    assert dict(remote.models) == {"public": "m"}
    assert remote.able == ABLE
