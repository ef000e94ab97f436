"""All rows of `kvgate bench gateway`, in one run."""

import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.gateway import route_decision, sim_rows
from bench.gateway.litellm_proxy import litellm, program
from bench.gateway.measures import CLIENTS, RATE, Held, Measures, Rate
from bench.gateway.own import TRACED, kvgate, standard, whole
from bench.gateway.processes import Cores, PeerError, Running, module
from bench.report import Figure, publish, timed_progress
from canon.errors import ModelFolderError
from gateway.local.default_tokenizer import default_tokenizer

Progress = Callable[[str], None]

_BARE, _OURS, _WHOLE, _LITELLM = "bare relay", "kvgate", "kvgate, all of it", "LiteLLM proxy"
_KB = 1000.0


@dataclass(frozen=True, slots=True)
class _Plan:
    """How long each part takes. Seconds, but for counts."""

    rounds: int  # of all but rates
    turns: int  # of each server's rate: short and many, since a machine's pace changes from one second to the next
    rate_s: float
    alone_s: float
    paced_s: float
    chunks: int  # of a stream whose chunks are counted
    held: int  # streams
    held_chunks: int
    held_pause_ms: float


_FULL = _Plan(
    3, 11, 1.5, 2.0, 10.0, 600, 1000, 60, 500.0
)  # 5 minutes with a chunk every 5 s, ten times as fast
_QUICK = _Plan(2, 5, 1.0, 1.0, 4.0, 250, 1000, 16, 500.0)


@dataclass(frozen=True, slots=True)
class Given:
    """What the bench cannot make itself. None: the rows that need it are not there, or say so."""

    litellm: Path | None = None  # its program; None: one that the bench installs
    conversations: Path | None = None  # traces, as `kvgate sim route` takes them
    agents: Path | None = None


def main(*, json: bool, quick: bool, given: Given) -> bool:
    """Measure and print; whether every target was reached. Raises TraceError for a trace that cannot be read."""
    progress = timed_progress()
    with tempfile.TemporaryDirectory(prefix="kvgate-bench-") as folder:
        bench = _Bench(Path(folder), _QUICK if quick else _FULL, progress, given.litellm)
        figures, facts = bench.run()
    progress("a route decision")
    figures += route_decision.figures(progress, quick=quick)
    if given.conversations is not None:
        figures += sim_rows.conversations(given.conversations, progress, quick=quick)
    if given.agents is not None:
        figures += sim_rows.agents(given.agents, progress, quick=quick)
    return publish(figures, facts, json=json)


class _Bench:
    """One run: the upstream and all relays are there from its start to its end, and are asked by turns."""

    def __init__(self, folder: Path, plan: _Plan, progress: Progress, litellm_program: Path | None) -> None:
        self._folder = folder
        self._plan = plan
        self._progress = progress
        self._litellm = litellm_program
        self._cores = Cores.of_machine()
        self._measures = Measures()
        self._missing: dict[str, str] = {}  # servers that could not be had, and why

    def run(self) -> tuple[list[Figure], dict[str, str]]:
        """Every figure, with the facts of the run."""
        self._cores.pin_load()
        with ExitStack() as stack:
            upstream, servers = self._start(stack)
            for server in servers.values():
                self._progress(f"{server.name}: warming")
                self._measures.warm(server)
            rates = self._rates(servers)
            direct = self._measures.rate(upstream, self._plan.rate_s)
            alone = self._alone(upstream, servers)
            late = self._late(servers)
            chunks = self._chunks(servers)
            held = self._held(servers[_OURS])
        figures = [
            *self._request_rows(rates, alone, late),
            *_stream_rows(chunks, held),
            self._whole_row(rates),
        ]
        return figures, _facts(rates, direct, alone)

    def _start(self, stack: ExitStack) -> tuple[Running, dict[str, Running]]:
        core = self._cores.relay
        enter = stack.enter_context
        upstreams = [
            enter(module("upstream", [], _made(self._folder / f"upstream-{i}"), self._cores.load))
            for i in range(2)
        ]
        ports = [each.port for each in upstreams]
        self._progress("starting the relays")
        servers = {_BARE: enter(module("bare_relay", [f"http://127.0.0.1:{ports[0]}"], self._folder, core))}
        ours = standard(ports, self._folder)
        servers[_OURS] = enter(kvgate(_OURS, ours, self._folder, core, {}))
        every = whole(ports, self._folder, self._tokenizer(), ports[1])
        servers[_WHOLE] = enter(kvgate("kvgate-whole", every, self._folder, core, TRACED))
        try:
            found = program(self._litellm, os.environ, self._progress)
            self._progress("starting LiteLLM's proxy")
            servers[_LITELLM] = enter(litellm(found, ports[0], self._folder, core))
        except PeerError as error:
            self._missing[_LITELLM] = str(error)
        return upstreams[0], servers

    def _tokenizer(self) -> Path | None:
        try:
            return default_tokenizer(self._progress)
        except ModelFolderError as error:
            self._missing[_WHOLE] = f"no tokenizer: {error}"
            return None

    def _rates(self, servers: Mapping[str, Running]) -> dict[str, list[Rate]]:
        """By turns: what is compared was measured within the same few seconds."""
        found: dict[str, list[Rate]] = {name: [] for name in servers}
        for number in range(self._plan.turns):
            self._progress(f"{CLIENTS} clients, turn {number + 1} of {self._plan.turns}")
            for name, server in servers.items():
                found[name].append(self._measures.rate(server, self._plan.rate_s))
        return found

    def _alone(self, upstream: Running, servers: Mapping[str, Running]) -> dict[str, float]:
        """Median seconds that each server adds to the upstream's own, for one client."""
        asked = {"upstream": upstream, **{name: servers[name] for name in (_BARE, _OURS, _WHOLE)}}
        found: dict[str, list[float]] = {name: [] for name in asked}
        for number in range(self._plan.rounds):
            self._progress(f"one client, round {number + 1} of {self._plan.rounds}")
            for name, server in asked.items():
                found[name].append(self._measures.alone(server, self._plan.alone_s).p50)
        itself = median(found.pop("upstream"))
        return {name: median(values) - itself for name, values in found.items()}

    def _late(self, servers: Mapping[str, Running]) -> dict[str, float]:
        """The 99th percentile in seconds at a fixed rate, by server."""
        found: dict[str, list[float]] = {_BARE: [], _OURS: []}
        for number in range(self._plan.rounds):
            for name in found:
                self._progress(f"{name}: {RATE:.0f} requests/s, round {number + 1} of {self._plan.rounds}")
                found[name].append(self._measures.paced(servers[name], self._plan.paced_s).p99)
        return {name: median(values) for name, values in found.items()}

    def _chunks(self, servers: Mapping[str, Running]) -> dict[str, float]:
        """CPU seconds of a chunk, by server."""
        found: dict[str, list[float]] = {_BARE: [], _OURS: []}
        for number in range(self._plan.rounds):
            for name in found:
                self._progress(f"{name}: chunks, round {number + 1} of {self._plan.rounds}")
                found[name].append(self._measures.chunk_cpu(servers[name], self._plan.chunks))
        return {name: median(values) for name, values in found.items()}

    def _held(self, server: Running) -> Held:
        plan = self._plan
        self._progress(f"{plan.held:,} streams open at once")
        return self._measures.held(server, plan.held, plan.held_chunks, plan.held_pause_ms)

    def _request_rows(
        self, rates: Mapping[str, list[Rate]], alone: Mapping[str, float], late: Mapping[str, float]
    ) -> list[Figure]:
        return [
            self._rate_row("requests/s on one core, everything on", _OURS, _LITELLM, rates, 25),
            self._rate_row("requests/s on one core, everything on", _OURS, _BARE, rates, 0.5),
            _milliseconds("added latency p50, one client", alone, 2),
            _milliseconds(f"p99 at {RATE:.0f} requests/s, open loop", late, 3),
        ]

    def _whole_row(self, rates: Mapping[str, list[Rate]]) -> Figure:
        name = "requests/s with tokenize, routing over 2 replicas, traces"
        return self._rate_row(name, _WHOLE, _BARE, rates, 0.3)

    def _rate_row(
        self, name: str, ours: str, peer: str, rates: Mapping[str, list[Rate]], target: float
    ) -> Figure:
        """The ratio is the median of the turns' own."""
        own, theirs = (
            [each.per_second for each in rates[ours]],
            [each.per_second for each in rates.get(peer, ())],
        )
        ratio = median(mine / its for mine, its in zip(own, theirs, strict=True)) if theirs else None
        missing = self._missing.get(peer, "")
        of_peer = median(theirs) if theirs else None
        return Figure(name, peer, of_peer, median(own), "requests/s", ratio, target, "at least", missing)


def _milliseconds(name: str, seconds: Mapping[str, float], target: float) -> Figure:
    theirs, ours = seconds[_BARE] * 1e3, seconds[_OURS] * 1e3
    return Figure(name, _BARE, theirs, ours, "ms", ours / theirs, target, "at most")


def _stream_rows(chunks: Mapping[str, float], held: Held) -> list[Figure]:
    bare, ours = chunks[_BARE] * 1e6, chunks[_OURS] * 1e6
    streams, grown = held.streams, held.bytes_a_stream / _KB
    name = f"{streams.streams:,} open streams of 5 minutes (shortened): "
    return [
        Figure("CPU time a relayed chunk", _BARE, bare, ours, "us", ours / bare, 1.5, "at most"),
        Figure(name + "memory a stream", "", None, grown, "KB", grown, 60, "at most"),
        Figure(name + "lost", "", None, streams.lost, "streams", streams.lost, 0, "at most"),
    ]


def _facts(rates: Mapping[str, list[Rate]], direct: Rate, alone: Mapping[str, float]) -> dict[str, str]:
    cpu = {name: f"{median(rate.cpu_s for rate in turns) * 1e6:,.0f} us" for name, turns in rates.items()}
    failed = sum(rate.failed for turns in rates.values() for rate in turns)
    return {
        "upstream alone": f"{direct.per_second:,.0f} requests/s",
        "CPU time a request": ", ".join(f"{name} {each}" for name, each in cpu.items()),
        "failed": str(failed),
        "added by all of it, one client": f"{alone[_WHOLE] * 1e3:.2f} ms",
        "load average": f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
    }


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
