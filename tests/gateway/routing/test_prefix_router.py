"""Where requests go, and why."""

import asyncio
import random
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.routing.policies import router_of
from gateway.routing.prefix_router import PrefixRouter
from gateway.routing.router import Decision
from gateway.routing.settings import PolicyName, RoutingSettings
from gateway.tenants.tenant import Tenant
from tests.gateway.routing.prompts import Clock, ask, choose, reported, tokens

REPLICAS = ["a", "b", "c"]
LONG = tokens((1, 4096))


def router(**settings: object) -> PrefixRouter:
    return PrefixRouter(RoutingSettings(**settings), Clock())


def finish(to: PrefixRouter, decision: Decision, prompt: int, reused: int | None = None) -> None:
    """It answers, and says that it reused what was expected, or so much."""
    to.first_token(decision)
    to.ended(decision, reported(prompt, decision.predicted or 0 if reused is None else reused))


def sent(to: PrefixRouter, ids: np.ndarray, **more: object) -> Decision:
    decision = choose(to, ask(ids, **more), REPLICAS)
    finish(to, decision, len(ids))
    return decision


def test_the_next_turn_goes_where_the_first_went() -> None:
    to = router()
    first = sent(to, LONG)
    second = choose(to, ask(np.append(LONG, tokens((2, 300)))), REPLICAS)
    assert (second.replica, second.reason, second.predicted) == (first.replica, "prefix", 4096)
    assert second.counted
    assert second.prompt == 4396


def test_cold_requests_are_spread() -> None:
    to = router()
    assert {sent(to, tokens((number, 3000))).replica for number in range(1, 4)} == set(REPLICAS)


def test_cold_requests_go_where_least_waits() -> None:
    to = router()
    for number in (1, 2):
        choose(to, ask(tokens((number, 50_000))), REPLICAS[:2])
    decision = choose(to, ask(tokens((3, 1000))), REPLICAS)
    assert (decision.replica, decision.reason) == ("c", "emptiest")


def test_a_request_leaves_a_replica_where_far_too_much_waits() -> None:
    to = router(slack_s=1.0)
    home = sent(to, LONG).replica
    choose(to, ask(tokens((9, 200_000))), [home])
    decision = choose(to, ask(LONG), REPLICAS)
    assert decision.replica != home
    assert decision.reason == "balance"


def test_a_hot_prefix_gets_copies_and_a_lukewarm_one_does_not() -> None:
    def used(count: int) -> set[str]:
        to, prefix = router(), tokens((1, 20_000))
        sent(to, prefix)
        asked = [ask(np.append(prefix, tokens((number, 200)))) for number in range(2, 2 + count)]
        return {choose(to, each, REPLICAS).replica for each in asked}

    # At its full price, a copy would be worth 20 seconds of waiting: 800 such requests.
    assert len(used(20)) == 1
    assert len(used(200)) > 1


def test_a_session_stays_though_nothing_is_known_of_its_prefix() -> None:
    to = router()
    home = sent(to, tokens((1, 100)), session="s").replica
    later = sent(to, tokens((2, 100)), session="s")
    assert (later.replica, later.reason) == (home, "session")
    assert sent(to, tokens((3, 100))).replica != home


def test_sessions_of_other_tenants_are_others() -> None:
    to = router()
    home = sent(to, tokens((1, 100)), session="s").replica
    other = choose(to, ask(tokens((2, 100)), tenant=Tenant("o", "o"), session="s"), REPLICAS)
    assert other.replica != home


@pytest.mark.parametrize(
    ("tenant", "body"),
    [(Tenant("o", "o"), {}), (Tenant("default", "default", salt="x"), {}), (None, {"cache_salt": "y"})],
)
def test_nothing_is_predicted_across_groups_and_salts(tenant: Tenant | None, body: dict) -> None:
    to = router()
    sent(to, LONG)
    asked = ask(LONG, body) if tenant is None else ask(LONG, body, tenant)
    assert choose(to, asked, REPLICAS).anywhere == 0


def test_tenants_of_one_group_share() -> None:
    to = router()
    sent(to, LONG, tenant=Tenant("one", "g"))
    assert choose(to, ask(LONG, tenant=Tenant("two", "g")), REPLICAS).predicted == 4095


def test_what_has_gone_is_expected_nowhere() -> None:
    to = router()
    home = sent(to, LONG).replica
    to.forget(home)
    assert choose(to, ask(LONG), REPLICAS).anywhere == 0


def test_a_request_that_never_got_there_leaves_nothing_behind() -> None:
    to = router()
    decision = choose(to, ask(LONG), REPLICAS)
    to.ended(decision, None)
    assert choose(to, ask(LONG), REPLICAS).anywhere == 0
    assert to.loads.all()[decision.replica].queued == 0 or decision.replica != "a"


def test_ending_twice_and_tokens_behind_the_end_are_of_no_effect() -> None:
    to = router()
    decision = choose(to, ask(LONG), REPLICAS)
    for _ in range(2):
        finish(to, decision, len(LONG))
    load = to.loads.all()[decision.replica]
    assert (load.queued, load.running, load.waiting) == (0, 0, 0)


def test_less_reuse_than_expected_shrinks_the_belief() -> None:
    to = router()
    decision = sent(to, LONG)
    again = choose(to, ask(np.append(LONG, tokens((2, 600)))), [decision.replica])
    older = tokens((7, 4096))
    finish(to, again, 4696, 0)
    assert choose(to, ask(older), REPLICAS).anywhere == 0


def test_the_faster_replica_is_found_out() -> None:
    clock = Clock()
    to = PrefixRouter(RoutingSettings(), clock)
    for number in range(40):
        decision = choose(to, ask(tokens((number + 1, 2000))), REPLICAS)
        clock.now += 0.1 if decision.replica == "b" else 1.0
        finish(to, decision, 2000)
    scores = {score.replica: score.ttft_s for score in choose(to, ask(tokens((99, 2000))), REPLICAS).scores}
    assert scores["b"] < scores["a"] / 3


def test_text_prompts_are_known_by_their_text_and_learn_what_a_token_is() -> None:
    to = router()
    turns = [{"role": "user", "content": "word " * 3000}]
    first = choose(to, ask(None, {"messages": turns}), REPLICAS)
    finish(to, first, 3000)  # four bytes were estimated as one token each: 3,750
    turns = [*turns, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "go on"}]
    second = choose(to, ask(None, {"messages": turns}), REPLICAS)
    assert (second.replica, second.reason, second.counted) == (first.replica, "prefix", False)
    assert second.predicted == pytest.approx(3000, rel=0.02)


def test_embeddings_go_where_least_runs_and_predict_nothing() -> None:
    to = router()
    decisions = [choose(to, ask_embedding(), REPLICAS) for _ in range(3)]
    assert {each.replica for each in decisions} == set(REPLICAS)
    assert all(each.predicted is None for each in decisions)
    assert len(to.index) == 0


def ask_embedding():
    return replace(ask(None, {"input": "x"}), prompt=False)


def test_a_sole_replica_costs_no_hashing() -> None:
    to = router()
    decision = choose(to, ask(LONG), ["a"])
    assert (decision.reason, decision.predicted, len(to.index)) == ("only", None, 0)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_every_decision_is_explained_and_the_same_calls_give_the_same_ones(seed: int) -> None:
    def run() -> list[tuple]:
        rng, clock = random.Random(seed), Clock()
        to, running, told = PrefixRouter(RoutingSettings(max_keys=300), clock), [], []
        for _ in range(40):
            clock.now += rng.random()
            if running and rng.random() < 0.5:
                decision, size = running.pop(rng.randrange(len(running)))
                if rng.random() < 0.9:
                    to.first_token(decision)
                to.ended(decision, None if rng.random() < 0.2 else reported(size, rng.randrange(size)))
            if rng.random() < 0.05:
                to.forget(rng.choice(REPLICAS))
            ids = tokens(*[(rng.randint(1, 2), rng.choice([100, 512, 1000])) for _ in range(3)])
            able = rng.sample(REPLICAS, rng.randint(1, 3))
            decision = choose(to, ask(ids), able)
            assert decision.replica in able
            assert {score.replica for score in decision.scores} == set(able)
            running.append((decision, len(ids)))
            told.append((decision.replica, decision.reason, decision.scores))
        for decision, _ in running:
            to.ended(decision, None)
        for load in to.loads.all().values():
            assert load.queued >= 0
            assert (load.waiting, load.work >= 0) == (0, True)
        to.index.check()
        assert len(to.index) <= 300
        return told

    assert run() == run()


async def test_a_long_prompt_is_hashed_off_the_loop_and_chosen_all_the_same() -> None:
    to = router()
    body = {"prompt": "x" * (2 << 20)}
    asked = replace(ask(None, body), size=2 << 20)
    first, second = await asyncio.gather(to.choose(asked, REPLICAS), to.choose(asked, REPLICAS))
    assert first.replica != second.replica or second.predicted


def test_prefills_that_nobody_tells_of_are_taken_to_end_at_the_known_speed() -> None:
    clock = Clock()
    to = PrefixRouter(RoutingSettings(prefill_tokens_per_s=1000.0), clock)
    for number in (1, 2):
        choose(to, replace(ask(tokens((number, 2000))), streams=False), ["a", "b"])
    clock.now = 1.0
    waits = {score.replica: score.ttft_s for score in choose(to, ask(tokens((9, 10))), ["a", "b"]).scores}
    assert waits["a"] == pytest.approx(1.0, abs=0.1)
    clock.now = 60.0
    for each in choose(to, ask(tokens((8, 10))), ["a", "b"]).scores:
        assert each.ttft_s < 0.2


def test_a_fault_in_what_is_believed_costs_the_belief_and_not_the_request() -> None:
    to = router()
    sent(to, LONG)
    again = choose(to, ask(LONG), REPLICAS)
    to.index._holders.clear()
    finish(to, again, 4096, 0)
    assert to.failed == 1
    for _ in range(2):
        sent(to, LONG)
    to.index.check()
    assert (choose(to, ask(LONG), REPLICAS).predicted, to.failed) == (4095, 1)


def nested() -> list:
    found: list = []
    for _ in range(5_000):
        found = [found]
    return found


@pytest.mark.parametrize(
    "body",
    [
        {"messages": 7},
        {"messages": [None, 1, ["x"], {"content": [{"type": 3}, None]}]},
        {"messages": [{"role": "user", "content": "\ud800"}]},
        {"prompt": [1, "a", None]},
        {"prompt": [2**70]},
        {"tools": {"a": {1: 2}}, "system": 5, "input": {"x": float("nan")}},
        {"cache_salt": {"a": ["\ud800"]}},
        {"messages": nested(), "tools": {1: nested()}, "cache_salt": nested()},
    ],
)
def test_any_body_is_routed(body: dict) -> None:
    for policy in get_args(PolicyName):
        other = router_of(RoutingSettings(policy=policy))
        decision = asyncio.run(other.choose(ask(None, body), REPLICAS))
        assert decision.replica in REPLICAS
        other.ended(decision, None)
    to = router()
    sent(to, LONG)
    first = choose(to, ask(None, body), REPLICAS)
    assert first.replica in REPLICAS
    assert first.scores
    assert to.failed == 0
    to.ended(first, None)


def test_an_image_counts_by_its_content() -> None:
    to = router()

    def turn(data: str) -> dict:
        image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
        text = {"type": "text", "text": "What is it? " * 400}
        return {"messages": [{"role": "user", "content": [image, text]}]}

    first = choose(to, ask(None, turn("A" * 100_000)), REPLICAS)
    finish(to, first, 2000)
    assert choose(to, ask(None, turn("A" * 100_000)), REPLICAS).anywhere > 1000
    assert choose(to, ask(None, turn("A" * 99_999 + "B")), REPLICAS).anywhere < 100
