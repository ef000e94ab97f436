"""`kvgate bench ttft`: what the main job must reach, each figure against its peer in the same run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import torch

from bench import match
from bench.measure import Measure, alternate
from bench.own_engine import GatewayThread, OwnEngine
from bench.peers import llama_cpp_peer
from bench.peers.llama_cpp_peer import LlamaCppPeer, stream_ttft
from bench.peers.transformers_peer import TransformersPeer
from bench.prompts import PromptMaker, long_text
from bench.report import Figure, publish, timed_progress
from canon.tokens import PromptTokenizer
from engine_adapters.embedded.adapter import EmbeddedAdapter
from engine_adapters.embedded.config import EmbeddedConfig
from engine_adapters.embedded.models import find_gguf
from gateway.surface.app import create_app

PREFIX = 7488  # tokens, whole blocks of 16, so that both sides compute exactly the question
SHORT_PREFILL = 2048
KV_BYTES = 2 << 30
STREAMS = 8
STREAM_CONTEXT = 512
SHARED_PREFIX = 7168

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Rounds:
    """How often each thing is measured."""

    cold: int = 3
    warm: int = 9
    decode: int = 5
    gateway: int = 30
    decode_tokens: int = 48


QUICK = Rounds(cold=1, warm=3, decode=1, gateway=6, decode_tokens=16)


class TtftBench:
    """All measurements of one run over one model."""

    def __init__(
        self, adapter: EmbeddedAdapter, gguf: Path | None, rounds: Rounds, progress: Progress
    ) -> None:
        self._adapter = adapter
        self._own = OwnEngine(adapter)
        self._chats = PromptTokenizer.from_folder(adapter.folder.tokenizer_path)
        self._peer = TransformersPeer(adapter.folder.path)
        self._prompts = PromptMaker(adapter.runner.vocab_size, seed=17)
        self._gguf = gguf
        self._rounds = rounds
        self._progress = progress

    def run(self) -> list[Figure]:
        """Every row; takes minutes."""
        self._own.ttft(self._prompts.tokens(64))
        prefill = self._prefill()
        return [
            *self._warm(prefill[f"Transformers {PREFIX + 15}"]),
            *self._over_http(),
            *self._prefill_rates(prefill),
            self._decode_fragmented(),
            *self._streams(),
            self._match(),
        ]

    def _prefill(self) -> dict[str, float]:
        """Seconds of cold prompts, ours and Transformers'."""

        def ours(count: int) -> Callable[[], float]:
            return lambda: self._own.ttft(self._prompts.tokens(count))

        def theirs(count: int) -> Callable[[], float]:
            return lambda: self._peer.prefill(self._prompts.tokens(count))

        cases: dict[str, Measure] = {}
        for count in (SHORT_PREFILL, PREFIX + 15):
            cases |= {f"Transformers {count}": theirs(count), f"kvgate {count}": ours(count)}
        return alternate(cases, self._rounds.cold, self._progress)

    def _prefill_rates(self, seconds: dict[str, float]) -> list[Figure]:
        return [
            _rate_figure(
                f"prefill of {count} tokens",
                count / seconds[f"Transformers {count}"],
                count / seconds[f"kvgate {count}"],
                target,
            )
            for count, target in ((SHORT_PREFILL, 0.95), (PREFIX + 15, 1.05))
        ]

    def _warm(self, transformers_cold: float) -> list[Figure]:
        prefix = self._prompts.tokens(PREFIX)
        self._peer.fill(prefix)
        self._own.ttft(self._prompts.question(prefix))
        reused = self._own.reused(self._prompts.question(prefix))
        if reused != PREFIX:
            raise RuntimeError(
                f"the warm prompt reused {reused} of {PREFIX} tokens: is the KV pool too small?"
            )
        medians = alternate(
            {
                "Transformers on its filled cache": lambda: self._peer.continue_with(
                    self._prompts.tokens(15)
                ),
                "kvgate warm": lambda: self._own.ttft(self._prompts.question(prefix)),
            },
            self._rounds.warm,
            self._progress,
        )
        warm, continued = medians["kvgate warm"], medians["Transformers on its filled cache"]
        name = f"TTFT, 15 new tokens on {PREFIX} cached"
        return [
            Figure(f"{name}, over a cold forward", "Transformers", transformers_cold, warm, "s",
                   transformers_cold / warm, 110, "at least"),
            Figure(f"{name}, over its own filled cache", "Transformers", continued, warm, "s",
                   continued / warm, 1.8, "at least"),
        ]  # fmt: skip

    def _over_http(self) -> list[Figure]:
        with GatewayThread(create_app(self._adapter, self._chats)) as gateway:
            return [*self._llama_cpp(gateway.port), self._gateway_overhead(gateway.port)]

    def _llama_cpp(self, port: int) -> list[Figure]:
        prefix = self._prompts.tokens(PREFIX)

        def ours(tokens: Any) -> float:
            return stream_ttft(port, "/v1/completions", self._completion(tokens))

        peer = self._start_llama_cpp()
        with peer or nullcontext():
            cold: dict[str, Callable[[], float]] = {
                "kvgate cold": lambda: ours(self._prompts.tokens(PREFIX + 15))
            }
            warm: dict[str, Callable[[], float]] = {
                "kvgate warm": lambda: ours(self._prompts.question(prefix))
            }
            ours(prefix)
            if peer is not None:
                cold["llama.cpp cold"] = lambda: peer.ttft(self._prompts.tokens(PREFIX + 15))
            cold_medians = alternate(cold, self._rounds.cold, self._progress)
            if peer is not None:
                peer.ttft(prefix)
                warm["llama.cpp warm"] = lambda: peer.ttft(self._prompts.question(prefix))
            medians = cold_medians | alternate(warm, self._rounds.warm, self._progress)
        return [
            _ttft_figure(f"TTFT over HTTP, {kind}", "llama.cpp", medians, kind, target)
            for kind, target in (("cold", 0.5), ("warm", 0.7))
        ]

    def _gateway_overhead(self, port: int) -> Figure:
        system = long_text(6500, seed=3)

        def messages(number: int) -> list[dict[str, str]]:
            question = f"Question {number}: which part of this manual speaks of blocks and headers?"
            return [{"role": "system", "content": system}, {"role": "user", "content": question}]

        def through(number: int) -> float:
            body = {"model": self._model, "messages": messages(number), "max_tokens": 1, "stream": True}
            return stream_ttft(port, "/v1/chat/completions", orjson.dumps(body | {"temperature": 0}))

        numbers = iter(range(100, 10**9))
        through(next(numbers))
        medians = alternate(
            {
                "the engine object": lambda: self._own.ttft(self._chats.chat(messages(next(numbers))).ids),
                "through the gateway": lambda: through(next(numbers)),
            },
            self._rounds.gateway,
            self._progress,
        )
        direct, gateway = medians["the engine object"], medians["through the gateway"]
        return Figure("warm TTFT through the gateway", "engine object", direct, gateway, "s",
                      gateway / direct, 1.05, "at most")  # fmt: skip

    def _decode_fragmented(self) -> Figure:
        prefix = self._prompts.tokens(PREFIX)
        self._peer.fill(prefix)
        self._own.flush()
        tokens = self._rounds.decode_tokens
        with fragmented(self._adapter):
            prompt = self._prompts.question(prefix)
            self._own.ttft(prompt)
            medians = alternate(
                {
                    "Transformers' generate": lambda: self._peer.decode_rate(tokens),
                    "kvgate decode": lambda: self._own.decode_rate([prompt], tokens),
                },
                self._rounds.decode,
                self._progress,
            )
        name = f"decode, one stream at {PREFIX} tokens over fragmented blocks"
        return _rate_figure(name, medians["Transformers' generate"], medians["kvgate decode"], 1.3)

    def _streams(self) -> list[Figure]:
        tokens = self._rounds.decode_tokens
        alone = [self._prompts.tokens(STREAM_CONTEXT) for _ in range(STREAMS)]
        prefix = self._prompts.tokens(SHARED_PREFIX)
        shared = [self._prompts.question(prefix) for _ in range(STREAMS)]
        figures = []
        for name, prompts, target in (
            (f"{STREAMS} streams at {STREAM_CONTEXT} tokens each", alone, 4.0),
            (f"{STREAMS} streams over one shared prefix of {SHARED_PREFIX}", shared, 3.0),
        ):
            medians = self._one_against_many(name, prompts, tokens)
            figures.append(Figure(name, "one stream", medians[0], medians[1], "tokens/s",
                                  medians[1] / medians[0], target, "at least"))  # fmt: skip
        return figures

    def _one_against_many(self, name: str, prompts: list[Any], tokens: int) -> tuple[float, float]:
        self._own.flush()
        for prompt in prompts:
            self._own.ttft(prompt)
        medians = alternate(
            {
                f"{name}: one": lambda: self._own.decode_rate(prompts[:1], tokens),
                f"{name}: all": lambda: self._own.decode_rate(prompts, tokens),
            },
            self._rounds.decode,
            self._progress,
        )
        return medians[f"{name}: one"], medians[f"{name}: all"]

    def _match(self) -> Figure:
        self._progress("match of a 250,000-token prefix")
        result = match.run()
        return Figure("match of a 250,000-token prefix", "1 MB memory compare", result.compare,
                      result.match, "s", result.ratio, 5, "at most")  # fmt: skip

    def _start_llama_cpp(self) -> LlamaCppPeer | None:
        if self._gguf is None or not llama_cpp_peer.installed():
            self._progress(
                "llama.cpp is not measured: it needs the default model and pip install --no-deps xllamacpp"
            )
            return None
        return LlamaCppPeer(self._gguf, self._adapter.runner.threads, context=8192)

    @property
    def _model(self) -> str:
        return self._adapter.capabilities().model

    def _completion(self, tokens: Any) -> bytes:
        body = {
            "model": self._model,
            "prompt": tokens.tolist(),
            "max_tokens": 1,
            "stream": True,
            "temperature": 0,
        }
        return orjson.dumps(body)


@contextmanager
def fragmented(adapter: EmbeddedAdapter) -> Iterator[None]:
    """Leave only every second block free, so that no two blocks of a prompt lie side by side."""
    pool = adapter.pool
    held = np.sort(pool.allocate(pool.free_count))
    pool.release(held[::2])
    try:
        yield
    finally:
        pool.release(held[1::2])


def _rate_figure(name: str, peer: float, ours: float, target: float) -> Figure:
    return Figure(name, "Transformers", peer, ours, "tokens/s", ours / peer, target, "at least")


def _ttft_figure(name: str, peer: str, medians: dict[str, float], kind: str, target: float) -> Figure:
    ours, theirs = medians[f"kvgate {kind}"], medians.get(f"{peer} {kind}")
    return Figure(name, peer, theirs, ours, "s", None if theirs is None else ours / theirs, target, "at most")


def main(*, json: bool = False, quick: bool = False, threads: int | None = None) -> bool:
    """Run, print, and say whether every target that could be measured was reached."""
    progress = timed_progress()

    adapter = EmbeddedAdapter.load(EmbeddedConfig(kv_bytes=KV_BYTES, threads=threads), progress)
    torch.set_num_threads(adapter.runner.threads)
    packaged = find_gguf()
    bench = TtftBench(adapter, packaged.path if packaged else None, QUICK if quick else Rounds(), progress)
    figures = bench.run()
    facts = {
        "device": str(adapter.runner.device),
        "threads": adapter.runner.threads,
        "rounds": "quick" if quick else "full",
    }
    return publish(figures, facts, json=json)
