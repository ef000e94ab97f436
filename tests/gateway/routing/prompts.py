"""Prompts of few different tokens, so that they share beginnings, and requests that ask with them."""

import asyncio
from collections.abc import Sequence

import numpy as np

from engine_adapters.base import ReuseReport
from gateway.routing.chain import PromptChain
from gateway.routing.router import Decision, RouteAsk, Router
from gateway.tenants.tenant import DEFAULT, Tenant


def tokens(*runs: tuple[int, int]) -> np.ndarray:
    """`tokens((7, 512), (8, 16))`: 512 times 7, then 16 times 8."""
    return np.concatenate([np.full(count, token, np.int32) for token, count in runs])


def chain(ids: np.ndarray, seed: bytes = b"") -> PromptChain:
    return PromptChain(seed, ids.tobytes())


def ask(
    ids: np.ndarray | None, body: dict | None = None, tenant: Tenant = DEFAULT, session: str | None = None
) -> RouteAsk:
    return RouteAsk("r", "engine", "m", body or {}, 0, tenant, ids, session)


def choose(router: Router, asked: RouteAsk, replicas: Sequence[str]) -> Decision:
    return asyncio.run(router.choose(asked, replicas))


def reported(prompt: int, reused: int) -> ReuseReport:
    return ReuseReport(prompt, reused, None, "test", "reported")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now
