"""One start of a heavy engine serves all tests of a module, and only one runs at a time."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.record import SESSIONS, Session
from tests.engines.running import running
from tests.requirements import loud_skips

WHY = "engines that take minutes to start run with `make test-engines`"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes minutes runs only where it was asked for by its marker."""
    if "engines" in config.option.markexpr:
        return
    slow = [item for item in items if item.get_closest_marker("engines")]
    for item in slow:
        item.add_marker(pytest.mark.skip(reason=WHY))
    if slow:
        loud_skips[WHY] = len(slow)


@pytest.fixture(scope="module")
def session_url(
    request: pytest.FixtureRequest, smollm2_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Session, str, Path]]:
    """The engine that the module's `SESSION` names: how it was started, its address, the folder with its sockets."""
    session = next(each for each in SESSIONS if each.name == request.param)
    folder = tmp_path_factory.mktemp("e")  # names of sockets must be short
    with running(session.command(folder), smollm2_folder, folder / "log") as url:
        yield session, url, folder
