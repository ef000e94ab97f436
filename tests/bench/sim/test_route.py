"""Routing policies over the beginning of a real trace, and the fleet that they are tried on."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from bench.sim.fleet import Clock, Fleet, LruBlocks
from bench.sim.requests import read_requests
from bench.sim.route import NAMES, Plan, RouteResult, compare
from bench.sim.trace import TraceError
from gateway.cli import app

TRACES = Path(__file__).parents[2] / "data" / "traces"
CONVERSATION = TRACES / "conversation_1500.jsonl.gz"


@pytest.fixture(scope="module")
def results() -> dict[str, RouteResult]:
    plan = Plan(replicas=8, blocks=1000, prefill_tokens_per_s=8000.0)
    return {each.policy: each for each in compare(read_requests(CONVERSATION), NAMES, plan, lambda _: None)}


def test_routing_by_prefixes_comes_near_one_cache_of_all_blocks(results: dict[str, RouteResult]) -> None:
    assert results["prefix"].over_round_robin > 1.0
    assert results["prefix"].gap_to_one_cache < 0.05  # of a trace that is soon over
    assert results["prefix"].imbalance < 1.2


def test_it_is_above_consistent_hashing_and_answers_sooner_than_the_affinity_rule(
    results: dict[str, RouteResult],
) -> None:
    assert results["prefix"].hit_rate > results["consistent_hash"].hit_rate
    assert results["prefix"].ttft_mean_s < results["affinity_rule"].ttft_mean_s
    assert results["prefix"].ttft_p99_s < results["round_robin"].ttft_p99_s


def test_the_same_trace_gives_the_same_figures(results: dict[str, RouteResult]) -> None:
    plan = Plan(replicas=8, blocks=1000, prefill_tokens_per_s=8000.0)
    (again,) = compare(read_requests(CONVERSATION), ["prefix"], plan, lambda _: None)
    assert again == results["prefix"]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True), max_size=30), st.integers(1, 8)
)
def test_a_replicas_cache_never_holds_more_than_it_can_and_hits_only_what_was_sent(prompts, capacity) -> None:
    cache, seen = LruBlocks(capacity), set()
    for ids in prompts:
        hits = cache.use(ids)
        assert hits <= capacity
        assert set(ids[:hits]) <= seen
        seen |= set(ids)
        assert cache.matched(ids) == min(len(ids), capacity)


def test_prefills_wait_for_each_other() -> None:
    fleet = Fleet(1, 100, prefill_tokens_per_s=512.0)
    assert fleet.send("replica-0", [1, 2], 0.0).ttft_s == 2.0
    assert fleet.send("replica-0", [1, 2, 3], 1.0).ttft_s == 2.0
    assert fleet.send("replica-0", [1, 2, 3], 10.0).ttft_s == 0.0


def test_what_is_due_happens_in_its_order_before_time_goes_on() -> None:
    clock, seen = Clock(), []
    clock.at(2.0, lambda: seen.append(("b", clock.now)))
    clock.at(1.0, lambda: seen.append(("a", clock.now)))
    clock.at(3.0, lambda: seen.append(("c", clock.now)))
    clock.go_to(2.5)
    assert (seen, clock.now) == ([("a", 1.0), ("b", 2.0)], 2.5)


def test_the_command_prints_a_list_as_json() -> None:
    shown = CliRunner().invoke(
        app,
        ["sim", "route", str(TRACES / "coding_agent_200.jsonl.gz"), "--replicas", "4", "--blocks", "500",
         "--policy", "prefix", "--policy", "round_robin", "--json"],
    )  # fmt: skip
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)
    assert [each["policy"] for each in found] == ["prefix", "round_robin"]
    assert found[0]["hit_rate"] > found[1]["hit_rate"]


def test_a_policy_that_there_is_not_is_named_with_those_there_are() -> None:
    shown = CliRunner().invoke(app, ["sim", "route", str(CONVERSATION), "--policy", "magic"])
    assert shown.exit_code == 1
    assert "'magic'; there are round_robin" in shown.output


@pytest.mark.parametrize(
    "line", ["{}", '{"hash_ids": [1]}', '{"timestamp": 1, "hash_ids": ["x"]}', "nothing"]
)
def test_a_line_that_is_no_request_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"timestamp": 1, "hash_ids": [1]}\n' + line + "\n")
    with pytest.raises(TraceError, match="line 2"):
        read_requests(path)
