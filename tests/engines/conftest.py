"""One start of a heavy engine serves all tests of a module, and only one runs at a time."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.engines.record import SESSIONS, Session
from tests.engines.running import running
from tests.requirements import loud_skips

WHY = "engines that take minutes to start run with `make test-engines`"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes minutes runs only where it was asked for by its marker."""
    if "engines" in config.option.markexpr:
        items.sort(key=_start)
        return
    slow = [item for item in items if item.get_closest_marker("engines")]
    for item in slow:
        item.add_marker(pytest.mark.skip(reason=WHY))
    if slow:
        loud_skips[WHY] = len(slow)


def _start(item: pytest.Item) -> tuple[str, str]:
    """Tests of a module that have one start in common follow each other; otherwise all keep their order."""
    parameters = (
        item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    )
    return str(item.path), str(parameters.get("session_url", ""))


class Running:
    """The engine that runs now. Starting another one ends it."""

    def __init__(self) -> None:
        self._name: str | None = None
        self._stack = ExitStack()
        self._url, self._folder = "", Path()

    def started(self, session: Session, model: Path, folder: Callable[[], Path]) -> tuple[str, Path]:
        """Its address, and the folder with its sockets."""
        if session.name != self._name:
            self.end()
            self._folder = folder()
            command = session.command(self._folder)
            self._url = self._stack.enter_context(running(command, model, self._folder / "log"))
            self._name = session.name
        return self._url, self._folder

    def end(self) -> None:
        self._name = None
        self._stack.close()


@pytest.fixture(scope="module")
def running_now() -> Iterator[Running]:
    now = Running()
    yield now
    now.end()


@pytest.fixture
def session_url(
    request: pytest.FixtureRequest,
    running_now: Running,
    smollm2_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Session, str, Path]:
    """The engine that the test's parameter names: how it was started, its address, the folder with its sockets.

    Tests of one engine that follow each other have one start in common. (A module's fixture with this parameter would
    be made anew for each test, as each has a parameter of its own beside it.)
    """
    session = next(each for each in SESSIONS if each.name == request.param)
    url, folder = running_now.started(session, smollm2_folder, lambda: tmp_path_factory.mktemp("e"))
    return session, url, folder  # names of sockets must be short
