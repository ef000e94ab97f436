"""What another replica may answer goes to another replica, and nothing else; a client never gets two halves."""

import json
import threading
import time

import httpx
import pytest

from gateway.replicas.breaker import BreakerOptions
from gateway.replicas.policy import PoolPolicy
from gateway.replicas.retry_budget import RetryOptions
from gateway.settings import GatewaySettings
from tests.gateway.relay.fake_engine import DONE, FINISH, Asked, Connection, content, usage_event, whole
from tests.gateway.replicas.fleet import BODY, CHAT, fleet_of
from tests.waiting import PATIENCE_S, wait_until

NEVER_OPEN = BreakerOptions(failures=1000, requests=1000)


def well(connection: Connection, asked: Asked) -> None:
    if not asked.body.get("stream"):
        connection.reply(whole(4))
        return
    connection.stream()
    for chunk in (content("Hello"), FINISH, usage_event(4), DONE):
        connection.chunk(chunk)
    connection.end()


def answering(status: str, *more: str):
    body = json.dumps({"error": {"message": "said so", "code": "mine"}}).encode()
    return lambda connection, _: connection.reply(body, status, *more)


def killed(connection: Connection, _: Asked) -> None:
    connection.reset()


def killed_behind_its_headers(connection: Connection, _: Asked) -> None:
    connection.stream()
    connection.reset()


def killed_in_its_answer(connection: Connection, _: Asked) -> None:
    connection.head("200 OK", "application/json", "content-length: 1000")
    connection.send(whole(0)[:20])
    connection.reset()


def read_to_its_end(http: httpx.Client) -> tuple[bytes, bool]:
    """What a stream brings, and whether it ends as HTTP has it."""
    body = b""
    try:
        with http.stream("POST", CHAT, json={**BODY, "stream": True}) as answer:
            for chunk in answer.iter_raw():
                body += chunk
    except httpx.RemoteProtocolError:
        return body, False
    return body, True


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "script",
    [
        None,
        killed,
        answering("503 Service Unavailable"),
        answering("502 Bad Gateway"),
        answering("429 Too Many Requests", "retry-after: 7"),
    ],
)
def test_another_replica_answers(script, stream: bool) -> None:
    with fleet_of([script, well]) as fleet:
        answer = fleet.gateway.http.post(CHAT, json={**BODY, "stream": stream})
        assert answer.status_code == 200
        assert b"Hello" in answer.content
        row = fleet.gateway.rows.one()
        assert (row.attempts, row.replica, row.status, row.error) == (2, "fleet/r1", 200, None)
        assert (row.reused, row.reuse_status) == (4, "reported")
        assert sum(fleet.pool.retries.values()) == 1
        wait_until(lambda: [member.running for member in fleet.pool.members] == [0, 0], "nothing runs")


def test_a_stream_that_ends_before_its_first_byte_is_answered_elsewhere() -> None:
    with fleet_of([killed_behind_its_headers, well]) as fleet:
        answer = fleet.gateway.http.post(CHAT, json={**BODY, "stream": True})
        assert answer.content.count(b"Hello") == 1
        assert answer.content.endswith(DONE)
        assert fleet.gateway.rows.one().attempts == 2


def test_a_whole_answer_that_breaks_off_has_given_the_client_nothing() -> None:
    with fleet_of([killed_in_its_answer, well]) as fleet:
        assert fleet.gateway.http.post(CHAT, json=BODY).json()["usage"]["prompt_tokens"] == 20
        assert fleet.asked == [1, 1]


@pytest.mark.parametrize("status", [400, 401, 404, 422, 500, 504])
def test_what_speaks_of_the_request_or_may_have_been_worked_on_is_not_sent_again(status: int) -> None:
    with fleet_of([answering(f"{status} No"), well]) as fleet:
        assert fleet.gateway.http.post(CHAT, json=BODY).status_code == status
        assert fleet.asked == [1, 0]
        assert fleet.gateway.rows.one().attempts == 1


def test_a_refusal_of_the_gateway_reaches_no_replica() -> None:
    with fleet_of([well, well]) as fleet:
        assert fleet.gateway.http.post(CHAT, json={**BODY, "chat_template": "x"}).status_code == 400
        assert fleet.asked == [0, 0]
        assert fleet.gateway.rows.one().attempts == 0


def test_a_stream_that_breaks_behind_its_first_byte_is_never_sent_again() -> None:
    def breaks(connection: Connection, _: Asked) -> None:
        connection.stream()
        connection.chunk(content("Hel"))
        connection.reset()

    with fleet_of([breaks, well]) as fleet:
        body, clean = read_to_its_end(fleet.gateway.http)
        assert not clean
        assert json.loads(body.split(b"data: ")[2])["error"]["code"] == "engine_failure"
        assert fleet.asked == [1, 0]
        row = fleet.gateway.rows.one()
        assert (row.attempts, row.reuse_status, row.error) == (1, "not_reported", "engine_failure")


def test_an_engine_that_takes_too_long_may_work_on_it_still() -> None:
    gone = threading.Event()

    def hangs(connection: Connection, _: Asked) -> None:
        connection.wait_for_its_end()
        gone.set()

    with fleet_of([hangs, well], first_byte_s=0.3) as fleet:
        answer = fleet.gateway.http.post(CHAT, json=BODY)
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "engine_timeout")
        assert gone.wait(PATIENCE_S)
        assert fleet.asked == [1, 0]


def test_all_busy_is_told_with_the_wait_that_the_last_one_said() -> None:
    busy = answering("429 Too Many Requests", "retry-after: 7")
    with fleet_of([busy, busy]) as fleet:
        answer = fleet.gateway.http.post(CHAT, json=BODY)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
        assert fleet.gateway.rows.one().attempts == 2


def test_one_request_takes_no_more_than_two_replicas_down() -> None:
    with fleet_of([killed] * 4) as fleet:
        assert fleet.gateway.http.post(CHAT, json=BODY).status_code == 500
        assert sum(fleet.asked) == 2


def test_tries_have_a_number() -> None:
    away = answering("503 Service Unavailable")
    with fleet_of([away] * 4, PoolPolicy(retries=RetryOptions(tries=3))) as fleet:
        assert fleet.gateway.http.post(CHAT, json=BODY).status_code == 503
        assert sorted(fleet.asked) == [0, 1, 1, 1]


def test_retries_are_a_share_of_requests_however_many_fail() -> None:
    policy = PoolPolicy(NEVER_OPEN, retries=RetryOptions(budget=0.1, reserve=5, per_s=0))
    away = answering("503 Service Unavailable")
    with fleet_of([away, away], policy) as fleet:
        for _ in range(100):
            fleet.gateway.http.post(CHAT, json=BODY)
        assert sum(fleet.pool.retries.values()) <= 100 * 0.1 + 5
        assert sum(fleet.asked) == 100 + sum(fleet.pool.retries.values())
        assert fleet.pool.budget.refused > 50


def test_comments_that_keep_a_stream_alive_are_no_answer() -> None:
    heard = threading.Event()

    def slow_then_killed(connection: Connection, _: Asked) -> None:
        heard.wait(PATIENCE_S)
        connection.reset()

    settings = GatewaySettings(keepalive_s=0.1)
    with fleet_of([slow_then_killed, well], settings=settings) as fleet:
        with fleet.gateway.http.stream("POST", CHAT, json={**BODY, "stream": True}) as answer:
            pieces = answer.iter_raw()
            first = next(pieces)
            heard.set()
            content = first + b"".join(pieces)
        assert first.startswith(b": keep-alive")
        assert content.count(b"Hello") == 1
        assert fleet.asked == [1, 1]


def test_hedging_asks_a_second_replica_and_cancels_the_loser() -> None:
    cancelled = threading.Event()

    def hangs(connection: Connection, _: Asked) -> None:
        if connection.wait_for_its_end():
            cancelled.set()

    with fleet_of([hangs, well], PoolPolicy(hedge_after_s=0.1)) as fleet:
        assert fleet.gateway.http.post(CHAT, json=BODY).status_code == 200
        assert cancelled.wait(PATIENCE_S)
        row = fleet.gateway.rows.one()
        assert (row.attempts, row.replica) == (2, "fleet/r1")
        assert fleet.pool.hedges == {"won": 1}
        wait_until(lambda: [member.running for member in fleet.pool.members] == [0, 0], "nothing runs")


def test_hedging_waits_for_the_first_one_where_the_second_fails() -> None:
    failed = threading.Event()

    def slow(connection: Connection, asked: Asked) -> None:
        failed.wait(PATIENCE_S)
        well(connection, asked)

    def fails(connection: Connection, asked: Asked) -> None:
        killed(connection, asked)
        failed.set()

    with fleet_of([slow, fails], PoolPolicy(hedge_after_s=0.1)) as fleet:
        answer = fleet.gateway.http.post(CHAT, json={**BODY, "stream": True})
        assert answer.content.endswith(DONE)
        assert fleet.asked == [1, 1]
        assert fleet.gateway.rows.one().replica == "fleet/r0"
        assert fleet.pool.hedges == {"lost": 1}


def test_nobody_is_hedged_where_it_is_off() -> None:
    def slow(connection: Connection, asked: Asked) -> None:
        time.sleep(0.3)
        well(connection, asked)

    with fleet_of([slow, slow]) as fleet:
        assert fleet.gateway.http.post(CHAT, json=BODY).status_code == 200
        assert sum(fleet.asked) == 1
