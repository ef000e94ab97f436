"""Each install has what its commands import."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.installed.closure import environment, image_extras

# What `kvgate serve` with a configuration and the other commands start from, whatever is configured.
_FOR_ALL = (
    "gateway.cli, gateway.config.assemble, gateway.process.service, gateway.reload.reloader, "
    "gateway.workers.launch"
)
# What a configuration asks for.
_FOR_GATEWAYS = (
    "gateway.kv_events.followers, gateway.shared_state.threaded, gateway.canonical.shared_memory, "
    "gateway.directory.redis_directory, gateway.tenants.tokens, gateway.telemetry.otel.exporting, psycopg"
)
_FOR_ENGINES = "engine_adapters.embedded.adapter, cache_core.tiered"


def imported(modules: str, extras: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"import {modules}"],
        env=environment(extras, folder),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.mark.parametrize(
    ("modules", "stage"),
    [
        (_FOR_ALL, None),
        (f"{_FOR_ALL}, {_FOR_GATEWAYS}", "build-gateway"),
        (f"{_FOR_ALL}, {_FOR_GATEWAYS}, {_FOR_ENGINES}", "build-engine"),
    ],
    ids=["base", "gateway", "engine"],
)
def test_an_install_has_what_it_imports(modules: str, stage: str | None, tmp_path: Path) -> None:
    done = imported(modules, image_extras(stage) if stage else [], tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["torch", "crc32c", "llguidance", "psutil", "pytest", "tests.installed"])
def test_what_an_install_does_not_bring_is_not_there(module: str, tmp_path: Path) -> None:
    done = imported(module, image_extras("build-gateway"), tmp_path)
    assert f"ModuleNotFoundError: No module named '{module.partition('.')[0]}" in done.stderr
