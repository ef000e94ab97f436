"""`kvgate sim route`: ways to choose a replica, side by side over one trace."""

import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TextIO

import numpy as np
import orjson
from rich.console import Console
from rich.table import Table

from bench.sim.affinity_rule import AffinityRule
from bench.sim.fleet import DECODE_S, Clock, Fleet, LruBlocks
from bench.sim.requests import TimedRequest, read_requests
from bench.sim.trace import TRACE_BLOCK
from engine_adapters.base import ReuseReport
from gateway.routing.policies import router_of
from gateway.routing.router import Decision, RouteAsk, Router
from gateway.routing.settings import RoutingSettings

Progress = Callable[[str], None]

AFFINITY = "affinity_rule"
NAMES = ("round_robin", "least_load", "consistent_hash", AFFINITY, "prefix")

_QUIET_S = 2.0  # seconds that pass without a word


class UnknownRoutingError(Exception):
    """No routing policy has that name."""


@dataclass(frozen=True, slots=True)
class RouteResult:
    """One policy over one trace."""

    policy: str
    replicas: int
    blocks: int  # of each replica's cache
    requests: int
    hit_rate: float  # blocks that hit / blocks asked for
    over_round_robin: float  # more hits, as a share
    gap_to_one_cache: (
        float  # hits that one cache of all replicas' blocks would have had beyond these, as a share
    )
    imbalance: float  # recomputed tokens: the most of a replica over the mean
    ttft_p50_s: float
    ttft_p99_s: float
    ttft_mean_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What is simulated."""

    replicas: int
    blocks: int
    prefill_tokens_per_s: float


def main(
    path: Path, policies: Sequence[str], sizes: Sequence[int], replicas: int, speed: float, *, json: bool
) -> None:
    """Replay the trace and print.

    Raises:
        TraceError: the trace cannot be read.
        UnknownRoutingError: there is no such policy.
    """
    names = list(dict.fromkeys(NAMES if "all" in policies else policies))
    if unknown := [name for name in names if name not in NAMES]:
        raise UnknownRoutingError(
            f"no routing policy is called {unknown[0]!r}; there are {', '.join(NAMES)} and all"
        )
    say(f"reading {path.name}")
    requests = read_requests(path)
    results = [
        result
        for size in dict.fromkeys(sizes)
        for result in compare(requests, names, Plan(replicas, size, speed), say)
    ]
    if json:
        print(orjson.dumps([asdict(result) for result in results]).decode())
    else:
        print_results(f"{path.name}, {len(requests):,} requests, {replicas} replicas", results, sys.stdout)


def say(line: str) -> None:
    """Tell somebody who waits."""
    print(line, file=sys.stderr, flush=True)


def compare(
    requests: Sequence[TimedRequest], names: Sequence[str], plan: Plan, progress: Progress
) -> list[RouteResult]:
    """Each policy over its own fleet; all against round-robin and against one cache of all blocks."""
    whole = LruBlocks(plan.blocks * plan.replicas)
    one = sum(whole.use(request.ids) for request in requests)
    runs = {name: _Run(requests, name, plan, progress) for name in dict.fromkeys(("round_robin", *names))}
    hits = {name: asyncio.run(run.replay()) for name, run in runs.items()}
    asked = sum(len(request.ids) for request in requests)
    return [
        RouteResult(
            policy=name,
            replicas=plan.replicas,
            blocks=plan.blocks,
            requests=len(requests),
            hit_rate=hits[name] / asked,
            over_round_robin=hits[name] / max(hits["round_robin"], 1) - 1,
            gap_to_one_cache=1 - hits[name] / max(one, 1),
            imbalance=runs[name].fleet.imbalance,
            ttft_p50_s=float(np.quantile(runs[name].ttfts, 0.5)),
            ttft_p99_s=float(np.quantile(runs[name].ttfts, 0.99)),
            ttft_mean_s=statistics.mean(runs[name].ttfts),
        )
        for name in names
    ]


class _Run:
    """One policy's replay: the code that routes is the gateway's."""

    def __init__(self, requests: Sequence[TimedRequest], name: str, plan: Plan, progress: Progress) -> None:
        self.fleet = Fleet(plan.replicas, plan.blocks, plan.prefill_tokens_per_s)
        self.ttfts: list[float] = []
        self._requests = requests
        self._name = name
        self._clock = Clock()
        self._rule = AffinityRule(self.fleet) if name == AFFINITY else None
        self._router: Router = self._rule or router_of(_settings(name, plan), lambda: self._clock.now)
        self._progress = progress

    async def replay(self) -> int:
        """Blocks that hit."""
        hits, told, replicas = 0, time.monotonic(), list(self.fleet.replicas)
        for number, request in enumerate(self._requests):
            self._clock.go_to(request.at)
            if self._rule is not None:
                self._rule.ids = request.ids
            decision = await self._router.choose(_ask(request), replicas)
            hits += self._answer(request, decision)
            if time.monotonic() - told >= _QUIET_S:
                told = time.monotonic()
                self._progress(
                    f"{self._name}, {self.fleet.blocks:,} blocks: {number / len(self._requests):.0%}"
                )
        return hits

    def _answer(self, request: TimedRequest, decision: Decision) -> int:
        answer = self.fleet.send(decision.replica, request.ids, self._clock.now)
        self.ttfts.append(answer.ttft_s)
        prompt, reused = len(request.ids) * TRACE_BLOCK + 1, answer.hits * TRACE_BLOCK
        report = ReuseReport(prompt, reused, None, "simulated", "reported")
        first = self._clock.now + answer.ttft_s
        self._clock.at(first, partial(self._router.first_token, decision))
        self._clock.at(first + request.output * DECODE_S, partial(self._router.ended, decision, report))
        return answer.hits


def _settings(name: str, plan: Plan) -> RoutingSettings:
    # A shadow that knows how much the replicas hold, and nothing of how fast they are but their kind.
    return RoutingSettings(
        policy=name,  # type: ignore[arg-type]
        capacity_tokens=plan.blocks * TRACE_BLOCK,
        prefill_tokens_per_s=plan.prefill_tokens_per_s,
    )


def _ask(request: TimedRequest) -> RouteAsk:
    # One token more, which is never reused: so every block of the trace can be.
    tokens = np.append(np.repeat(np.array(request.ids, np.int32), TRACE_BLOCK), np.int32(-1))
    return RouteAsk("", "fleet", "model", {}, 0, tokens=tokens, session=request.session)


def print_results(title: str, results: Sequence[RouteResult], out: TextIO) -> None:
    """A table for each size of the replicas' caches."""
    console = Console(file=out, width=None if out.isatty() else 120, highlight=False)
    console.print(title, style="bold")
    for size in dict.fromkeys(result.blocks for result in results):
        console.print(_table(size, [result for result in results if result.blocks == size]))


def _table(size: int, results: Sequence[RouteResult]) -> Table:
    table = Table(title=f"{size:,} blocks each", title_justify="left")
    table.add_column("policy")
    for heading in ("hit rate", "over round-robin", "to one cache", "most/mean", "TTFT p50", "p99", "mean"):
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(
            result.policy,
            f"{result.hit_rate:.4f}",
            f"{result.over_round_robin:+.1%}",
            f"{-result.gap_to_one_cache:+.1%}",
            f"{result.imbalance:.3f}",
            *(f"{each:.2f} s" for each in (result.ttft_p50_s, result.ttft_p99_s, result.ttft_mean_s)),
        )
    return table
