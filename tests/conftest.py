"""What every test may use: the default model and tiny random models. `tests.requirements` has `require`."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from engine_adapters.embedded.models import cache_dir, resolve_model
from tests.requirements import loud_skips
from tests.tiny_models import Arch, save_tiny_model


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
