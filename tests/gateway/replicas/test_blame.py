"""A failure that is one tenant's own takes no replica from the others; one that meets several does."""

import json
import threading
import time
from collections.abc import Callable

import httpx
import pytest

from gateway.replicas.blame import AnsweredLately, Blame
from gateway.replicas.breaker import BreakerOptions
from gateway.replicas.policy import PoolPolicy
from tests.gateway.relay.fake_engine import Asked, Connection, content, event
from tests.gateway.replicas.fleet import BODY, CHAT, Fleet, fleet_of
from tests.gateway.replicas.test_breaker import Clock
from tests.gateway.replicas.test_retries import well
from tests.gateway.tenants.people import ALICE, BOB, CARL, three
from tests.waiting import PATIENCE_S, wait_until

BREAKER = BreakerOptions(failures=3, error_rate=0.5, requests=10, open_s=600, longest_open_s=600)
POLICY = PoolPolicy(BREAKER, slow_start_s=0)
BAD = {**BODY, "tools": 5}


def answers_500(connection: Connection, _: Asked) -> None:
    error = {"code": 500, "message": "type must be array, but is number", "type": "server_error"}
    connection.reply(json.dumps({"error": error}).encode(), "500 Internal Server Error")


def breaks(connection: Connection, _: Asked) -> None:
    connection.reset()


def fails_in_its_stream(connection: Connection, _: Asked) -> None:
    connection.stream()
    connection.chunk(content("Hel") + event({"error": {"message": "no", "code": 500}}))
    connection.end()


def over(failure: Callable[[Connection, Asked], None]) -> Callable[[Connection, Asked], None]:
    """Well, but for bodies that are not."""
    return lambda connection, asked: (failure if "tools" in asked.body else well)(connection, asked)


def ask(fleet: Fleet, key: str, body: dict[str, object]) -> int:
    """The status; 0: its answer broke off."""
    try:
        return fleet.gateway.http.post(
            CHAT, json=body, headers={"authorization": f"Bearer {key}"}
        ).status_code
    except httpx.RemoteProtocolError:
        return 0


def states(fleet: Fleet) -> set[str]:
    wait_until(lambda: not any(member.running for member in fleet.pool.members), "all has ended")
    return {member.breaker.state for member in fleet.pool.members}


@pytest.mark.parametrize(
    ("failure", "stream"), [(answers_500, False), (breaks, False), (fails_in_its_stream, True)]
)
def test_one_tenants_bad_bodies_open_no_breaker_for_the_others(failure, stream: bool) -> None:
    with fleet_of([over(failure)] * 2, POLICY, tenants=three()) as fleet:
        assert ask(fleet, BOB, BODY) == 200
        for number in range(24):  # each another one, so many in a row and by far the most of all
            assert ask(fleet, ALICE, {**BAD, "user": str(number), "stream": stream}) != 400
        assert states(fleet) == {"closed"}
        assert ask(fleet, BOB, BODY) == 200


def test_what_meets_several_tenants_opens_it() -> None:
    with fleet_of([answers_500, well], POLICY, tenants=three()) as fleet:
        for key in (ALICE, BOB, CARL) * 8:
            ask(fleet, key, BODY)
        assert fleet.pool.members[0].breaker.opened == {"failures_in_a_row": 1}
        assert fleet.pool.members[1].breaker.state == "closed"


def test_where_there_is_nobody_else_other_bodies_open_it_and_the_same_one_again_does_not() -> None:
    with fleet_of([answers_500], POLICY) as fleet:
        for _ in range(12):  # the SDK sends what met a 500 three times
            ask(fleet, "none", BAD)
        assert states(fleet) == {"closed"}
        ask(fleet, "none", {**BAD, "user": "a"})
        ask(fleet, "none", {**BAD, "user": "b"})
        assert fleet.pool.members[0].breaker.opened == {"failures_in_a_row": 1}


def test_a_bad_probe_of_the_tenant_whose_bodies_opened_it_does_not_keep_it_open() -> None:
    policy = PoolPolicy(BreakerOptions(failures=2, open_s=0, good_probes=1), slow_start_s=0)
    with fleet_of([over(answers_500)], policy, tenants=three()) as fleet:
        for number in range(2):  # while nobody else is there
            ask(fleet, ALICE, {**BAD, "user": str(number)})
        (member,) = fleet.pool.members
        assert member.breaker.opened == {"failures_in_a_row": 1}
        asking = fleet.pool._answered
        asking.well("bob")  # as another replica has answered Bob meanwhile
        ask(fleet, ALICE, {**BAD, "user": "probe"})
        assert states(fleet) == {"half_open"}
        assert ask(fleet, BOB, BODY) == 200
        assert states(fleet) == {"closed"}


def test_a_tenants_timeouts_are_its_own_while_the_replica_answers_others() -> None:
    # Where the machine stands still, the replica answers nobody in time.
    found = next(found for found in (_timed_out(2.0) for _ in range(20)) if found is not None)
    assert found == {"closed"}


def _timed_out(first_byte_s: float) -> set[str] | None:
    """States after six of Alice's requests timed out; None: Bob was not answered before the first one did."""
    end = threading.Event()

    def hangs(connection: Connection, asked: Asked) -> None:
        if "tools" in asked.body:
            end.wait(PATIENCE_S)
        else:
            well(connection, asked)

    with fleet_of([hangs], POLICY, first_byte_s=first_byte_s, tenants=three()) as fleet:
        began = time.monotonic()

        def late() -> bool:
            return time.monotonic() - began >= first_byte_s

        threads = [
            threading.Thread(target=ask, args=(fleet, ALICE, {**BAD, "user": str(number)}))
            for number in range(6)
        ]
        for thread in threads:
            thread.start()
        wait_until(lambda: sum(member.running for member in fleet.pool.members) == 6 or late(), "they run")
        status = ask(fleet, BOB, BODY)
        in_time = not late()
        for thread in threads:
            thread.join()
        end.set()
        assert status == 200 or not in_time
        return states(fleet) if in_time else None


def test_the_newest_two_tenants_say_whether_others_were_answered() -> None:
    clock = Clock()
    answered = AnsweredLately(30, clock)
    blame = Blame(answered)
    assert not answered.others("a")
    answered.well("a")
    assert (answered.others("a"), answered.others("b")) == (False, True)
    clock.now += 20
    answered.well("b")
    answered.well("b")
    assert answered.others("a")
    assert answered.others("b")
    clock.now += 20  # a's was longer ago than the window
    assert answered.others("a")
    assert not answered.others("b")
    assert [blame.counts("a", body) for body in (1, 2, 2)] == [True, False, False]
    clock.now += 20
    assert [blame.counts("a", body) for body in (3, 3, 4)] == [True, False, True]
    assert [blame.counts(name, 4) for name in ("b", "a", "b")] == [True, True, True]
