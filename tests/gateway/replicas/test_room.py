"""`max_running` counts for each replica that gets requests, whichever a router would rather have."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from gateway.routing.least_loaded import LeastLoaded
from gateway.routing.router import Decision, RouteAsk
from gateway.settings import GatewaySettings
from tests.gateway.relay.fake_engine import Asked, Connection, whole
from tests.gateway.replicas.fleet import BODY, CHAT, Fleet, fleet_of
from tests.waiting import PATIENCE_S, wait_until

ONE_EACH = GatewaySettings(max_running={"fleet": 1})


class Stubborn(LeastLoaded):
    """Would send everything to one replica, as a hot prefix does."""

    async def choose(self, ask: RouteAsk, candidates: Sequence[str]) -> Decision:
        return Decision(min(candidates), "prefix")


class Held:
    """Answers when it is let go; knows how many requests it had at once."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.running = self.most = 0
        self._lock = threading.Lock()

    def __call__(self, connection: Connection, _: Asked) -> None:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.go.wait(PATIENCE_S)
        with self._lock:
            self.running -= 1
        connection.reply(whole(0))


@contextmanager
def asking(fleet: Fleet, times: int) -> Iterator[Callable[[], list[int]]]:
    with ThreadPoolExecutor(times) as threads:
        answers = [threads.submit(fleet.gateway.http.post, CHAT, json=BODY) for _ in range(times)]
        yield lambda: [answer.result().status_code for answer in answers]


def test_a_full_replica_leaves_a_request_to_one_that_has_room() -> None:
    held = [Held(), Held()]
    with fleet_of(held, settings=ONE_EACH) as fleet:
        fleet.pool.router = Stubborn()
        with asking(fleet, 4) as answers:
            wait_until(lambda: fleet.asked == [1, 1], "one request at each")
            for each in held:
                each.go.set()
            assert answers() == [200] * 4
    assert [each.most for each in held] == [1, 1]


def test_without_a_bound_the_router_has_its_way() -> None:
    held = [Held(), Held()]
    with fleet_of(held) as fleet:
        fleet.pool.router = Stubborn()
        with asking(fleet, 3) as answers:
            wait_until(lambda: fleet.asked == [3, 0], "all of them at one")
            held[0].go.set()
            assert answers() == [200] * 3


def test_a_replica_that_is_away_makes_no_room_at_the_others() -> None:
    held = Held()
    held.go.set()
    with fleet_of([held, None], settings=ONE_EACH) as fleet:
        while fleet.pool.at_work > 1:
            assert fleet.gateway.http.post(CHAT, json=BODY).status_code == 200
        held.go.clear()
        with asking(fleet, 3) as answers:
            wait_until(lambda: held.running == 1, "one that runs")
            held.go.set()
            assert answers() == [200] * 3
    assert held.most == 1
