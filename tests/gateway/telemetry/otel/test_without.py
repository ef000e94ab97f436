"""A collector that is away, and a process without OpenTelemetry: requests are answered all the same."""

import json
import logging
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.settings import GatewaySettings
from gateway.telemetry.otel.options import OtelOptions
from tests.gateway.running_server import running
from tests.gateway.scripted_engine import MODEL

_ENDS_WITHIN = 30.0  # seconds; the SDK by itself goes on for longer against a collector that says nothing

# Serves one request in a process where neither the SDK nor an exporter can be imported; FastAPI has the bare API.
_NO_PACKAGE = """
import sys
sys.modules["opentelemetry.sdk"] = sys.modules["opentelemetry.exporter"] = None
from gateway.logs import configure_logs
configure_logs(json=True)
from gateway.settings import GatewaySettings
from gateway.telemetry.otel.options import otel_options
from tests.gateway.running_server import running
from tests.gateway.scripted_engine import MODEL
options = otel_options({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
with running(GatewaySettings(otel=options)) as server:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "a"}]}
    assert server.http.post("/v1/chat/completions", json=body).status_code == 200
    assert "kvgate_requests_total" in server.http.get("/metrics").text
"""


def test_without_the_package_a_line_says_so_and_nothing_else_changes() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _NO_PACKAGE], capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr
    lines = [json.loads(line) for line in ran.stderr.splitlines() if line.startswith("{")]
    (warning,) = [line for line in lines if line["level"] == "warn"]
    assert "kvgate[otel]" in warning["install"]


def test_nobody_who_does_not_want_it_imports_it() -> None:
    names = "('opentelemetry.sdk', 'opentelemetry.exporter')"
    code = f"import gateway.process.service, sys; print([m for m in sys.modules if m.startswith({names})])"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    assert ran.stdout.strip() == "[]"


def test_a_collector_that_says_nothing_holds_up_neither_requests_nor_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL, "opentelemetry")  # it says each failed try
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = OtelOptions(True, True, f"http://127.0.0.1:{silent.getsockname()[1]}")
        with running(GatewaySettings(otel=options)) as server:
            body = {"model": MODEL, "messages": [{"role": "user", "content": "a"}]}
            for _ in range(3):
                assert server.http.post("/v1/chat/completions", json=body).status_code == 200
            leaving = time.monotonic()
        assert time.monotonic() - leaving < _ENDS_WITHIN


def test_what_kvgate_cannot_send_is_refused_before_anything_is_loaded() -> None:
    environ = {**os.environ, "OTEL_TRACES_EXPORTER": "zipkin"}
    refused = CliRunner().invoke(app, ["serve", "--port", "0"], env=environ)
    assert refused.exit_code != 0
    assert "OTEL_TRACES_EXPORTER" in refused.output


def test_a_configured_collector_is_refused_where_the_environment_wants_another_protocol(
    tmp_path: Path,
) -> None:
    file = tmp_path / "kvgate.yaml"
    engine = "{name: a, kind: vllm, url: 'http://127.0.0.1:9'}"
    file.write_text(f"engines: [{engine}]\notlp_endpoint: http://127.0.0.1:9\n")
    environ = {**os.environ, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    refused = CliRunner().invoke(app, ["serve", "--port", "0", "--config", str(file)], env=environ)
    assert refused.exit_code != 0
    assert "http/protobuf" in refused.output
