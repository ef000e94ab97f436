"""Replicas behind a name."""

import asyncio
import socket
from collections.abc import Sequence

import pytest

from gateway.replicas.address import ReplicaAddress
from gateway.replicas.discovery import dns
from gateway.replicas.discovery.dns import DnsDiscovery, DnsName, addresses, resolved
from tests.waiting import until

NAME = DnsName("engines.llm.svc", 8000)
NO_NAME = socket.gaierror(socket.EAI_NONAME, "no such name")


class Answers:
    """One after another; when there are no more, whoever asks waits for ever."""

    def __init__(self, *answers: Sequence[str] | Exception) -> None:
        self._left = list(answers)
        self.done = asyncio.Event()

    async def __call__(self, name: str, family: socket.AddressFamily) -> Sequence[str]:
        if not self._left:
            self.done.set()
            await asyncio.Event().wait()
        answer = self._left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def lists(*answers: Sequence[str] | Exception) -> tuple[list[list[str]], DnsDiscovery]:
    given = Answers(*answers)
    discovery = DnsDiscovery(NAME, given, lambda _: asyncio.sleep(0))
    found: list[list[str]] = []

    async def run() -> None:
        async for each in discovery.watch():
            found.append([address.name for address in each])  # noqa: PERF401  it never ends

    task = asyncio.create_task(run())
    async with asyncio.timeout(10):
        await given.done.wait()
    task.cancel()
    await asyncio.wait([task])
    return found, discovery


async def test_every_change_is_told_once_whatever_the_order() -> None:
    found, _ = await lists(["10.0.0.2", "10.0.0.1"], ["10.0.0.1", "10.0.0.2"], *[["10.0.0.2"]] * 4)
    assert found == [["10.0.0.1:8000", "10.0.0.2:8000"], ["10.0.0.2:8000"]]


@pytest.mark.parametrize("lacks", [["10.0.0.1"], ["fd00::1"], [], NO_NAME, ["nonsense"]])
async def test_an_address_that_two_answers_lack_stays_and_three_in_a_row_end_it(
    lacks: Sequence[str] | Exception,
) -> None:
    both, two = ["10.0.0.1", "10.0.0.2"], ["10.0.0.1:8000", "10.0.0.2:8000"]
    flapping = [both, lacks, lacks, both, lacks, both, lacks, lacks, both]
    assert (await lists(*flapping))[0] == [two]
    left = addresses([] if isinstance(lacks, Exception) else lacks, NAME)
    assert (await lists(*flapping, lacks, lacks, lacks))[0] == [two, [each.name for each in left]]


async def test_an_answer_of_another_family_alone_replaces_nobody_at_once() -> None:
    found, _ = await lists(["10.0.0.1", "fd00::1"], ["fd00::1"], ["10.0.0.1", "fd00::1"], *[["fd00::1"]] * 3)
    assert found == [["10.0.0.1:8000"], ["[fd00::1]:8000"]]


async def test_a_name_that_lacked_an_address_is_looked_up_again_soon() -> None:
    slept: list[float] = []
    given = Answers(["10.0.0.1"], NO_NAME, ["10.0.0.1"], ["10.0.0.2"], ["10.0.0.1", "10.0.0.2"])

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def run() -> None:
        async for _ in DnsDiscovery(DnsName("a", 1, every_s=60.0), given, sleep).watch():
            pass

    task = asyncio.create_task(run())
    async with asyncio.timeout(10):
        await given.done.wait()
    task.cancel()
    await asyncio.wait([task])
    assert slept == [60.0, 5.0, 60.0, 5.0, 60.0]


async def test_nobody_goes_because_a_server_of_names_fails(caplog: pytest.LogCaptureFixture) -> None:
    away = socket.gaierror(socket.EAI_AGAIN, "temporary failure")
    found, discovery = await lists(["10.0.0.1"], *[away] * 10)
    assert found == [["10.0.0.1:8000"]]
    assert discovery.failing
    assert len(caplog.records) == 1


async def test_a_server_of_names_that_hangs_is_told_of_and_nobody_goes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dns, "_LATE_S", 0.01)
    answers: list[asyncio.Future[list[str]]] = []

    async def resolve(name: str, family: socket.AddressFamily) -> list[str]:
        answers.append(asyncio.get_running_loop().create_future())
        return await answers[-1]

    discovery = DnsDiscovery(NAME, resolve, lambda _: asyncio.sleep(0))
    lists = discovery.watch()
    first = asyncio.ensure_future(anext(lists))
    await until(lambda: discovery.failing)
    answers[0].set_result(["10.0.0.1"])
    assert [each.name for each in await first] == ["10.0.0.1:8000"]
    second = asyncio.ensure_future(anext(lists))
    await until(lambda: discovery.failing)
    await asyncio.sleep(0.05)
    assert len(answers) == 2  # nobody asks beside it
    answers[1].set_result(["10.0.0.1", "10.0.0.2"])
    assert [each.name for each in await second] == ["10.0.0.1:8000", "10.0.0.2:8000"]
    assert not discovery.failing
    assert [each.fields["error"] for each in caplog.records if each.levelname == "WARNING"] == [
        "no answer for 0.01 s"
    ] * 2
    await lists.aclose()


async def test_all_go_when_a_name_has_no_address_for_long_enough() -> None:
    found, _ = await lists(["10.0.0.1"], NO_NAME, NO_NAME, ["10.0.0.1"], NO_NAME, NO_NAME, NO_NAME)
    assert found == [["10.0.0.1:8000"], []]


async def test_a_name_that_is_not_there_yet_has_nobody() -> None:
    found, discovery = await lists(NO_NAME, ["10.0.0.1"])
    assert found == [[], ["10.0.0.1:8000"]]
    assert not discovery.failing


def test_a_replica_with_addresses_of_both_families_is_taken_once() -> None:
    both = addresses(["fd00::1", "10.0.0.10", "10.0.0.9"], NAME)
    assert [each.name for each in both] == ["10.0.0.9:8000", "10.0.0.10:8000"]
    assert addresses(["fd00::1%eth0"], NAME) == [ReplicaAddress("[fd00::1]:8000", "http://[fd00::1]:8000")]


async def test_this_machine_resolves_its_own_name() -> None:
    assert set(await resolved("localhost", socket.AF_INET)) == {"127.0.0.1"}
    with pytest.raises(socket.gaierror):
        await resolved("no-such-name.invalid", socket.AF_UNSPEC)
    with pytest.raises(UnicodeError):
        await resolved("a" * 64 + ".b", socket.AF_UNSPEC)
