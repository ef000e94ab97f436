"""kvgate as the bench runs it: one worker, everything on."""

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import psutil

from bench.gateway.bodies import MODEL
from bench.gateway.load import KEY
from bench.gateway.processes import Running, first_line, started

_START_S = 60
_SAMPLED = "0.1"  # of the requests that the second configuration traces


@contextmanager
def kvgate(
    name: str, config: Mapping[str, Any], folder: Path, core: int | None, environ: Mapping[str, str]
) -> Iterator[Running]:
    """One worker with `config`, once it takes requests."""
    file, log = folder / f"{name}.json", folder / f"{name}.log"
    file.write_bytes(orjson.dumps(config))  # JSON is YAML, too
    command = [sys.executable, "-m", "gateway", "serve", "--config", str(file), "--port", "0", "--json"]
    with started(command, log, core, environ) as child:
        told = orjson.loads(first_line(child, log, _START_S))
        port = int(told["base_url"].rsplit(":", 1)[1].split("/")[0])
        yield Running(name, psutil.Process(child.pid), port)


def standard(upstreams: Sequence[int], folder: Path) -> dict[str, Any]:
    """A tenant with its key, canon's `safe`, a ledger, metrics; one engine."""
    key = {"sha256": hashlib.sha256(KEY.encode()).hexdigest()}
    return {
        "engines": [_engine(upstreams[:1])],
        "tenants": [{"name": "bench", "keys": [key]}],
        "canon_policy": ["safe"],
        "ledger": {"url": str(folder / "standard.db")},
    }


def whole(upstreams: Sequence[int], folder: Path, tokenizer: Path | None, collector: int) -> dict[str, Any]:
    """The same, with a tokenizer, a replica for each upstream and traces."""
    engine = _engine(upstreams)
    if tokenizer is not None:
        engine["tokenizer"] = str(tokenizer)
    return {
        **standard(upstreams, folder),
        "engines": [engine],
        "ledger": {"url": str(folder / "whole.db")},
        "otlp_endpoint": f"http://127.0.0.1:{collector}",
    }


TRACED = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": _SAMPLED}


def _engine(ports: Sequence[int]) -> dict[str, Any]:
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    return {"kind": "openai", "name": "bench", "replicas": urls, "models": [MODEL]}
