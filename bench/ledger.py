"""`kvgate bench ledger`: what the ledger costs a request, how fast it writes, how fast and small reports are."""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median

import orjson
import psutil
from sqlalchemy.engine import URL

from bench.ledger_load import Load, engine, send
from bench.report import Figure, publish, timed_progress
from engine_adapters.base import ReuseReport
from gateway.ledger import Database, Divergence, LedgerRow, LedgerWriter, open_writer
from gateway.ledger.accounting import row_of
from gateway.transport.record import RequestRecord

Progress = Callable[[str], None]

_RATE = 500  # requests a second
_ROWS = 1_000_000
_KEPT = 50_000  # rows that may wait while the bench fills a ledger
_MB = 1e6


def main(*, json: bool, quick: bool) -> bool:
    """Measure and print; whether every target was reached."""
    progress = timed_progress()
    with tempfile.TemporaryDirectory(prefix="kvgate-bench-") as folder:
        figures, facts = run(Path(folder), quick, progress)
    return publish(figures, facts, json=json)


def run(folder: Path, quick: bool, progress: Progress) -> tuple[list[Figure], dict[str, str]]:
    """Every figure, with the facts of the run."""
    relay = _bare_relay(folder, 1_500 if quick else 5_000, progress)
    progress("the enqueue call")
    enqueue = _enqueue(folder / "enqueue.db")
    progress("a queue that nobody empties")
    bounded = _bounded(folder / "bounded.db")
    ledger = folder / "rows.db"
    rate = _fill(ledger, _ROWS, progress)
    reports = []
    for number in range(1 if quick else 3):
        progress(f"report {number + 1}")
        reports.append(_report(ledger))
    wall, cpu, peak = (median(values) for values in zip(*reports, strict=True))
    share = enqueue.row_and_put_s / relay.cpu_s
    figures = [
        _row("enqueue, of the bare relay's CPU time a request", "bare relay", relay.cpu_s * 1e6,
             enqueue.row_and_put_s * 1e6, "us", share, 0.05),
        _row(f"report on {_ROWS:,} rows, the whole command", "", None, wall, "s", wall, 3.0),
        _row("the same, CPU time", "", None, cpu, "s", cpu, 3.0),
        _row("the same, peak memory of its process", "", None, peak / _MB, "MB", peak / _MB, 300.0),
        _row("memory of a full queue", "", None, bounded.grown / _MB, "MB", bounded.grown / _MB, 100.0),
        Figure("rows written a CPU second, rows made and queued included", "", None, rate, "rows/s", rate,
               2_000.0, "at least"),
    ]  # fmt: skip
    facts = {
        "relay": f"{relay.load.requests / relay.load.seconds:,.0f} requests/s, {relay.load.failed} failed",
        "put alone": f"{enqueue.put_s * 1e6:.2f} us",
        "ledger": f"{ledger.stat().st_size / _ROWS:,.0f} bytes a row",
        "full queue": f"{bounded.kept:,} rows kept, {bounded.dropped:,} of {bounded.put:,} dropped and counted",
        "load average": f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
    }
    return figures, facts


def _row(
    name: str, peer: str, theirs: float | None, ours: float, unit: str, ratio: float, target: float
) -> Figure:
    return Figure(name, peer, theirs, ours, unit, ratio, target, "at most")


@dataclass(frozen=True, slots=True)
class _Relay:
    load: Load
    cpu_s: float  # of the gateway's process, a request


def _bare_relay(folder: Path, requests: int, progress: Progress) -> _Relay:
    """A gateway process without ledger and canon, before an engine that answers at once: the cheapest request."""

    async def measured() -> _Relay:
        async with engine() as port:
            with _gateway(folder, port) as (process, gateway_port):
                progress(f"the bare relay at {_RATE} requests/s")
                await send(gateway_port, _RATE, _RATE)  # warm
                before = _cpu(process)
                load = await send(gateway_port, requests, _RATE)
                used = _cpu(process) - before
        return _Relay(load, used / requests)

    return asyncio.run(measured())


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextmanager
def _gateway(folder: Path, engine_port: int) -> Iterator[tuple[psutil.Process, int]]:
    config = folder / "kvgate.json"  # JSON is YAML, too
    upstream = {"kind": "openai", "name": "e", "url": f"http://127.0.0.1:{engine_port}", "models": ["m"]}
    config.write_bytes(orjson.dumps({"engines": [upstream], "canon_policy": ["off"]}))
    environ = {**os.environ, "KVGATE_LEDGER": "off"}
    command = [sys.executable, "-m", "gateway", "serve", "--config", str(config), "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ)
    try:
        assert process.stdout is not None
        line = next((line for line in process.stdout if b'"base_url"' in line), None)
        if line is None:
            raise RuntimeError("the gateway ended at its start")
        url = orjson.loads(line)["base_url"]
        yield psutil.Process(process.pid), int(url.rsplit(":", 1)[1].split("/")[0])
    finally:
        process.terminate()
        process.wait(60)


@dataclass(frozen=True, slots=True)
class _Enqueue:
    row_and_put_s: float
    put_s: float


def _enqueue(path: Path) -> _Enqueue:
    """CPU seconds of the request path's own thread, at the pace of the relay, while the writer writes."""
    writer = _writer(path)
    record = _record()
    both = put = 0.0
    started, calls = time.perf_counter(), 4 * _RATE
    for number in range(calls):
        time.sleep(max(0.0, started + number / _RATE - time.perf_counter()))
        begin = time.thread_time()
        row = row_of(record)
        middle = time.thread_time()
        writer.put(row)
        end = time.thread_time()
        both += end - begin
        put += end - middle
    writer.close(60)
    return _Enqueue(both / calls, put / calls)


def _record() -> RequestRecord:
    record = RequestRecord("req-0123456789abcdef", "POST", "/v1/chat/completions")
    record.route, record.engine, record.status, record.model, record.stream = "chat", "e", 200, "m", True
    record.reuse = ReuseReport(
        900, 800, {"device": 700, "host": 100}, "usage.prompt_tokens_details", "reported"
    )
    record.prompt_tokens, record.completion_tokens, record.ttft_s = 900, 30, 0.2
    return record


@dataclass(frozen=True, slots=True)
class _Bounded:
    put: int
    kept: int
    dropped: int
    grown: int  # bytes


def _bounded(path: Path) -> _Bounded:
    """More rows than the queue takes, and a writer that was not started: as when the database is away."""
    writer = LedgerWriter(Database(URL.create("sqlite", database=str(path))))
    record, put, before = _record(), 200_000, psutil.Process().memory_info().rss
    for _ in range(put):
        writer.put(row_of(record))
    counts, after = writer.counts(), psutil.Process().memory_info().rss
    return _Bounded(put, counts.waiting, counts.dropped, max(0, after - before))


def _fill(path: Path, rows: int, progress: Progress) -> float:
    """Rows a CPU second of this whole process, which makes them, queues them and writes them."""
    writer, random = _writer(path), Random(1)
    now, started = time.time(), time.process_time()
    for number in range(rows):
        writer.put(_some_row(number, rows, now, random))
        if number % 10_000 == 0:
            if number % 200_000 == 0:
                progress(f"{number:,} rows written")
            while writer.counts().waiting > _KEPT:
                time.sleep(0.05)
    lost = writer.close(600)
    counts = writer.counts()
    if lost or counts.written != rows:
        raise RuntimeError(f"the ledger took {counts.written} of {rows} rows")
    return rows / (time.process_time() - started)


def _some_row(number: int, rows: int, now: float, random: Random) -> LedgerRow:
    prompt = random.randrange(50, 8_000)
    reused = random.choice((0, 0, prompt - 1, prompt // 32 * 16, None))
    arrival = now - 86_400 + 86_400 * number / rows
    first = arrival + 0.03 + (prompt - (reused or 0)) * 1e-4
    completion = random.randrange(1, 400)
    return LedgerRow(
        f"req-{number:032x}", f"tenant-{number % 40}", f"model-{number % 5}", "chat", engine=f"engine-{number % 8}",
        arrival=arrival, first_token=first, end=first + completion * 0.02, stream=number % 4 > 0, status=200,
        prompt=prompt, reused=reused, by_tier={} if reused is None else {"device": reused}, completion=completion,
        reuse_status="not_reported" if reused is None else "reported",
        reuse_source="usage.prompt_tokens_details.cached_tokens",
        predicted=None if number % 3 else prompt // 16 * 16, gap_cause="evicted" if number % 5 == 0 else None,
        canon_policy="safe", finish="stop", trace_id=f"{number:032x}",
        divergence=Divergence("messages[0].content", 120, "clock", f"{number:032x}") if number % 2 else None,
    )  # fmt: skip


def _writer(path: Path) -> LedgerWriter:
    writer = open_writer(str(path), {})
    assert writer is not None, "a path is not off"
    return writer


def _report(ledger: Path) -> tuple[float, float, float]:
    """Wall-clock seconds, CPU seconds and bytes of memory of `kvgate audit`, from its start to its end."""
    command = [sys.executable, "-m", "gateway", "audit", "--ledger", str(ledger), "--by", "tenant,model"]
    started = time.perf_counter()
    process = subprocess.Popen([*command, "--json"], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"kvgate audit ended with {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    return wall, used.ru_utime + used.ru_stime, float(used.ru_maxrss * unit)
