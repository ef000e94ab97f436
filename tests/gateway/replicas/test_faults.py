"""Engines in processes of their own that are killed, stopped, hang, come late, flap and drain under a real gateway."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import httpx
import pytest

from gateway.replicas.breaker import BreakerOptions
from gateway.replicas.policy import PoolPolicy
from gateway.replicas.pool import EnginePool
from tests.gateway.relay.serving import Relaying, relaying
from tests.gateway.replicas.engine_process import MODEL, EngineProcess, engine_processes
from tests.gateway.replicas.fleet import BODY, CHAT, Fleet, replica
from tests.waiting import wait_until

LONG = {**BODY, "stream": True, "user": "200"}  # four seconds
BREAKER = BreakerOptions(failures=2, open_s=0.5, good_probes=1)
POLICY = PoolPolicy(BREAKER, stall_s=60, slow_start_s=0)


@contextmanager
def gateway_over(
    engines: Sequence[EngineProcess], policy: PoolPolicy = POLICY, quickly: Sequence[int] = ()
) -> Iterator[Fleet]:
    """`quickly`: replicas that must say within a second that they are well; the others may be slow."""
    remotes = [
        replica(engine.url, f"r{at}", first_byte_s=600, probe_s=1 if at in quickly else 60)
        for at, engine in enumerate(engines)
    ]
    pool = EnginePool("fleet", remotes, policy=policy)
    with relaying([], pools=[pool]) as gateway:
        wait_until(lambda: all(each.asked.is_set() for each in pool.replicas), "all were asked")
        before = len(os.listdir("/proc/self/fd"))
        yield Fleet(gateway, [], pool)
        wait_until(lambda: not any(member.running for member in pool.members), "nothing is held")
        wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before + 8, "sockets are closed")


class Reading(threading.Thread):
    """Reads a stream beside the test, to whatever end it has."""

    def __init__(self, gateway: Relaying, asked: Mapping[str, object] = LONG, **headers: str) -> None:
        super().__init__()
        self._gateway = gateway
        self._asked = asked
        self._headers = headers
        self.body = b""
        self.clean = True
        self.start()

    def run(self) -> None:
        try:
            with httpx.stream(
                "POST", f"{self._gateway.url}{CHAT}", json=self._asked, headers=self._headers, timeout=120
            ) as answer:
                for chunk in answer.iter_raw():
                    self.body += chunk
        except httpx.HTTPError:
            self.clean = False

    @property
    def error(self) -> str:
        """The code in its last event."""
        return json.loads(self.body.split(b"data: ")[-1])["error"]["code"]


def ask(fleet: Fleet, **headers: str) -> httpx.Response:
    return fleet.gateway.http.post(CHAT, json=BODY, headers=headers)


def test_killed_before_the_first_byte_another_one_answers() -> None:
    with engine_processes("hung", "well") as engines, gateway_over(engines) as fleet:
        answers: list[httpx.Response] = []
        asking = threading.Thread(target=lambda: answers.append(ask(fleet)))
        asking.start()
        wait_until(lambda: fleet.pool.members[0].running == 1, "the first one has it")
        engines[0].kill()
        asking.join()
        assert answers[0].status_code == 200
        row = fleet.gateway.rows.one()
        assert (row.attempts, row.replica, row.reuse_status) == (2, "fleet/r1", "reported")


def test_killed_in_mid_stream_the_client_is_told_and_cut_off() -> None:
    with engine_processes("well", None) as engines, gateway_over(engines) as fleet:
        reading = Reading(fleet.gateway)
        wait_until(lambda: b"word" in reading.body, "the first word")
        engines[0].kill()
        reading.join()
        assert not reading.clean
        assert reading.error == "engine_failure"
        row = fleet.gateway.rows.one()
        assert (row.reuse_status, row.error, row.attempts) == ("not_reported", "engine_failure", 1)


def test_hung_the_clients_deadline_ends_it() -> None:
    with engine_processes("hung") as engines, gateway_over(engines) as fleet:
        answer = ask(fleet, **{"x-kvgate-timeout": "0.3"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline_exceeded")
        assert fleet.gateway.rows.one().error == "deadline_exceeded"


def test_the_operators_deadline_ends_it_where_the_client_says_nothing() -> None:
    with engine_processes("hung") as engines, gateway_over(engines, PoolPolicy(timeout_s=0.3)) as fleet:
        assert ask(fleet).json()["error"]["code"] == "deadline_exceeded"


def test_silent_it_is_found_by_itself_and_nobody_waits_for_it_any_more() -> None:
    with engine_processes("well", "well") as engines, gateway_over(engines, quickly=[0]) as fleet:
        engines[0].signal(signal.SIGSTOP)
        wait_until(lambda: fleet.pool.members[0].state == "away", "it is found to be away")
        assert {ask(fleet, **{"x-kvgate-timeout": "30"}).status_code for _ in range(6)} == {200}
        engines[0].signal(signal.SIGCONT)
        wait_until(lambda: fleet.pool.members[0].state == "ready", "it is back")


def test_stopped_in_mid_stream_the_stall_bound_ends_it() -> None:
    impatient = PoolPolicy(BREAKER, stall_s=0.6)
    with engine_processes("stuck") as engines, gateway_over(engines, impatient) as fleet:
        reading = Reading(fleet.gateway)
        reading.join()
        assert not reading.clean
        assert b"word" in reading.body
        assert reading.error == "engine_timeout"
        assert fleet.gateway.rows.one().reuse_status == "not_reported"


def test_a_deadline_in_mid_stream_is_told_in_the_stream() -> None:
    with engine_processes("well") as engines, gateway_over(engines) as fleet:
        endless = {**LONG, "user": "100000"}
        reading = Reading(fleet.gateway, endless, **{"x-kvgate-timeout": "2"})
        reading.join()
        assert not reading.clean
        assert b"word" in reading.body
        assert reading.error == "deadline_exceeded"


def test_started_late_it_takes_part_when_it_is_there() -> None:
    with engine_processes("well", None) as engines, gateway_over(engines) as fleet:
        assert {ask(fleet).status_code for _ in range(4)} == {200}
        assert fleet.pool.members[1].state == "away"
        engines[1].start()
        wait_until(lambda: fleet.pool.members[1].state == "ready", "it is there")
        for _ in range(4):
            ask(fleet)
        wait_until(lambda: len(fleet.gateway.rows.kept) == 8, "all have a row")
        assert {row.replica for row in fleet.gateway.rows.kept[-4:]} == {"fleet/r0", "fleet/r1"}


def test_flapping_no_request_fails() -> None:
    with engine_processes("well", "well") as engines, gateway_over(engines) as fleet:
        end = threading.Event()
        statuses: list[int] = []

        def keep_asking() -> None:
            with httpx.Client(base_url=fleet.gateway.url, timeout=60) as http:
                while not end.is_set():
                    statuses.append(http.post(CHAT, json=BODY).status_code)
                    time.sleep(0.02)

        def more_are_answered() -> None:
            before = len(statuses)
            wait_until(lambda: len(statuses) >= before + 6, "requests are answered")

        asking = [threading.Thread(target=keep_asking) for _ in range(3)]
        for thread in asking:
            thread.start()
        for _ in range(4):
            engines[1].kill()
            more_are_answered()
            engines[1].start()
            more_are_answered()
        end.set()
        for thread in asking:
            thread.join()
        assert set(statuses) == {200}


@pytest.mark.parametrize("mode", [None, "drains"])
def test_where_all_are_away_clients_are_told_when_to_come_back(mode: str | None) -> None:
    with engine_processes(mode, mode) as engines, gateway_over(engines) as fleet:
        answer = ask(fleet)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_not_ready")
        assert answer.headers["retry-after"]
        assert fleet.gateway.http.get("/ready").status_code == 503
        assert fleet.gateway.rows.one().attempts == 0


def test_draining_it_ends_what_runs_and_gets_nothing_new() -> None:
    with engine_processes("well", None) as engines, gateway_over(engines) as fleet:
        reading = Reading(fleet.gateway)
        wait_until(lambda: b"word" in reading.body, "the first word")
        engines[1].start()
        wait_until(lambda: fleet.pool.members[1].state == "ready", "the other one is there")
        engines[0].signal(signal.SIGTERM)
        assert {ask(fleet).status_code for _ in range(6)} == {200}
        reading.join()
        assert reading.clean
        assert reading.body.endswith(b"data: [DONE]\n\n")
        wait_until(lambda: fleet.pool.members[0].state == "away", "its health says so, too")


def test_a_client_that_leaves_lets_go_of_a_hung_engine() -> None:
    with engine_processes("hung") as engines, gateway_over(engines) as fleet:
        with pytest.raises(httpx.ReadTimeout):
            fleet.gateway.http.post(CHAT, json=BODY, timeout=httpx.Timeout(5, read=0.3))
        assert fleet.gateway.rows.one().error == "client_gone"
        assert fleet.pool.members[0].breaker.state == "closed"  # that says nothing of the engine


def test_the_model_of_a_fleet_is_listed_once() -> None:
    with engine_processes("well", "well") as engines, gateway_over(engines) as fleet:
        assert [each["id"] for each in fleet.gateway.http.get("/v1/models").json()["data"]] == [MODEL]
