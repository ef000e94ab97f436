"""The official SDK's own tests of the routes that kvgate has, against kvgate over an engine that always answers.

They come with the SDK's source distribution, which `make test` puts beside the environment; nothing of them is in
this repository.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from gateway.relay.remote import Remote
from tests.compatibility.answering_engine import answering_engine
from tests.gateway.relay.serving import relaying
from tests.requirements import require_that

SOURCE = Path(sys.prefix) / "sdk-tests" / f"openai-{version('openai')}"
PLUGINS = Path(__file__).parent / "plugins"
# Each with what kvgate has no route for.
SUITES = {
    "chat/test_completions.py": ("retrieve", "update", "list", "delete"),  # of completions that are stored
    "test_completions.py": (),
    "test_embeddings.py": (),
    "test_models.py": ("delete",),
    "test_responses.py": ("compact",),
    "responses/test_input_items.py": (),
}
LEAST = 280  # tests that these are, in the SDK's version 3.57


@pytest.fixture
def suite() -> Path:
    folder = SOURCE / "tests" / "api_resources"
    require_that(
        folder.is_dir(), f"the SDK's own tests are missing: `make setup-dev` puts them into {SOURCE}"
    )
    return folder


def models_in(suite: Path) -> list[str]:
    """Every model that the tests name."""
    text = "".join((suite / name).read_text() for name in SUITES)
    named = re.findall(r'model="([^"]+)"|models\.\w+\(\s*"([^"]+)"', text)
    return sorted({name for names in named for name in names if name})


def left_out(suite: Path) -> list[str]:
    """Options that leave out what there is no route for."""
    return [
        f"--deselect=tests/api_resources/{name}::{kind}::{test}"
        for name, words in SUITES.items()
        for kind, test in named_in((suite / name).read_text())
        if any(word in test for word in words)
    ]


def named_in(text: str) -> Iterator[tuple[str, str]]:
    kind = ""
    for line in text.splitlines():
        if found := re.match(r"class (\w+)", line):
            kind = found[1]
        elif found := re.match(r"    (?:async )?def (test_\w+)", line):
            yield kind, found[1]


def test_the_sdks_own_tests_pass(suite: Path) -> None:
    with answering_engine(models_in(suite)) as url:
        remote = Remote(OpenAICompatibleEngine("answering", url))
        with relaying([remote]) as gateway:
            ran = subprocess.run(
                [
                    *(sys.executable, "-m", "pytest", "-q", "--tb=short", "-o", "addopts="),
                    *("-p", "no:cacheprovider", "-p", "kvgate_kept_responses"),
                    *left_out(suite),
                    *(f"tests/api_resources/{name}" for name in SUITES),
                ],
                cwd=SOURCE,
                env={
                    **os.environ,
                    "TEST_API_BASE_URL": f"{gateway.url}/v1",
                    "PYTHONPATH": str(PLUGINS),
                    "PYTHONDONTWRITEBYTECODE": "1",
                },
                capture_output=True,
                text=True,
                timeout=600,
            )
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-2000:]
    passed = re.search(r"(\d+) passed", ran.stdout)
    assert passed is not None
    assert int(passed[1]) >= LEAST
    assert "skipped" not in ran.stdout.splitlines()[-1]
