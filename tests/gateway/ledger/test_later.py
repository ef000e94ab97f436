"""Requests are expected in the order in which they were sent, once each, and no later than somebody asks."""

from engine_adapters.base import ReuseReport
from gateway.ledger.expectation import Expectation, SentRequest
from gateway.ledger.later import LaterExpectations
from gateway.ledger.row import GapCause
from tests.waiting import until


class Predicting:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def expect(self, request: SentRequest) -> Expectation:
        self.seen.append(request.scope)
        return Expectation(predicted=len(self.seen), token=request.scope)

    def cause(self, expected: Expectation, reuse: ReuseReport) -> GapCause | None:
        return None


def sent(name: str) -> SentRequest:
    return SentRequest("e", name, {}, {}, 2)


async def test_what_waits_is_worked_out_soon_and_in_order() -> None:
    predictor = Predicting()
    later = LaterExpectations(predictor)
    found = [later.expect(sent(name)) for name in "abc"]
    assert predictor.seen == []
    await until(lambda: len(predictor.seen) == 3, "all are worked out")
    assert predictor.seen == ["a", "b", "c"]
    assert [each.known().predicted for each in found] == [1, 2, 3]


async def test_whoever_asks_need_not_wait_and_it_is_worked_out_once() -> None:
    predictor = Predicting()
    later = LaterExpectations(predictor)
    first, second = later.expect(sent("a")), later.expect(sent("b"))
    assert second.known() == Expectation(predicted=1, token="b")
    later.flush()
    assert (first.known().predicted, second.known().predicted) == (2, 1)
    assert predictor.seen == ["b", "a"]


async def test_many_do_not_wait_for_the_clock() -> None:
    predictor = Predicting()
    later = LaterExpectations(predictor)
    for number in range(40):
        later.expect(sent(str(number)))
    assert len(predictor.seen) == 32
    later.flush()
    assert predictor.seen == [str(number) for number in range(40)]
