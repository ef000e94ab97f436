"""What choosing one of 64 replicas costs for a very long prompt, over hashing its bytes."""

from collections.abc import Callable
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from bench.measure import alternate, cpu_seconds
from bench.report import Figure
from engine_adapters.base import ReuseReport
from gateway.routing.prefix_router import PrefixRouter
from gateway.routing.prompt_chain import chain_of
from gateway.routing.router import Decision, RouteAsk

REPLICAS = 64
TOKENS = 250_000
TURN = 600  # tokens: the last turn, which no replica has seen
TARGET = 3.0

_EACH = 5  # of which the fastest counts: both are short, and other processes get in between


def figures(progress: Callable[[str], None], *, quick: bool = False) -> list[Figure]:
    """One row: a decision, chain hashing included, over SHA-256 of as many bytes as the prompt has."""
    rng = np.random.default_rng(7)
    prompt = rng.integers(0, 150_000, TOKENS, dtype=np.int32)
    data = rng.bytes(1_000_000)
    decide = _Decider(prompt, rng)
    found = alternate(
        {
            "SHA-256 of 1 MB": lambda: min(cpu_seconds(lambda: sha256(data).digest()) for _ in range(_EACH)),
            "a route decision": lambda: min(decide() for _ in range(_EACH)),
        },
        rounds=5 if quick else 21,
        progress=lambda _: None,
    )
    peer, ours = found["SHA-256 of 1 MB"], found["a route decision"]
    progress(f"route decision: {ours * 1e3:.2f} ms")
    return [
        Figure(
            name=f"route decision, {REPLICAS} replicas, prompt of {TOKENS:,} tokens with a new last turn",
            peer="SHA-256 of 1 MB",
            peer_value=peer * 1e3,
            our_value=ours * 1e3,
            unit="ms",
            ratio=ours / peer,
            target=TARGET,
            sense="at most",
        )
    ]


class _Decider:
    """Asks for one long prompt again and again, each time with another last turn."""

    def __init__(self, prompt: NDArray[np.int32], rng: np.random.Generator) -> None:
        self._prompt = prompt
        self._rng = rng
        self._router = PrefixRouter()
        self._replicas = [f"replica-{place}" for place in range(REPLICAS)]
        self._warm()

    def __call__(self) -> float:
        tokens = self._prompt.copy()
        tokens[-TURN:] = self._rng.integers(0, 150_000, TURN, dtype=np.int32)
        decisions: list[Decision] = []
        spent = cpu_seconds(lambda: decisions.append(self._decide(tokens)))
        (decision,) = decisions
        self._router.first_token(decision)
        self._router.ended(decision, ReuseReport(len(tokens), decision.predicted, None, "bench", "reported"))
        return spent

    def _decide(self, tokens: NDArray[np.int32]) -> Decision:
        step = self._router.choose(self._asked(tokens), self._replicas)
        try:
            step.send(None)
        except StopIteration as end:
            decision: Decision = end.value
            return decision
        raise AssertionError("it waited for something")

    def _warm(self) -> None:
        """Each replica has some of it: what is looked up has as many answers as it can have."""
        for place, replica in enumerate(self._replicas):
            some = self._asked(self._prompt[: TOKENS * (place + 1) // REPLICAS])
            self._router.index.stored(replica, chain_of(some).keys)

    @staticmethod
    def _asked(tokens: NDArray[np.int32]) -> RouteAsk:
        return RouteAsk("r", "engine", "model", {}, 0, tokens=tokens)
