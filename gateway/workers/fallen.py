"""What processes that have ended had counted, so that no sum goes down when one is started again."""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gateway.telemetry.figures import Family, counted, families_sent, merged

log = logging.getLogger("kvgate.workers")

_KEPT = tuple[list[list[Any]], dict[str, list[list[Any]]]]
_LEFT = "figures-"
_APART = 16  # of the latest it is known which figures were whose, should one turn out to live


class Fallen:
    """Kept in a file as well, for the process that takes the place of this one."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._older: Sequence[Family] = []
        self._latest: dict[str, Sequence[Family]] = {}
        try:
            older, latest = msgspec.msgpack.decode(file.read_bytes(), type=_KEPT)
            self._older, self._latest = older, dict(latest)
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError) as error:
            log.error("what ended processes had counted is lost: %s", error)  # noqa: TRY400

    def add(self, process: str, snapshot: Iterable[Family]) -> None:
        """`process` has ended, and this is the last that it said."""
        self._latest[process] = counted(snapshot)
        if len(self._latest) > _APART:
            oldest = self._latest.pop(next(iter(self._latest)))
            self._older = families_sent(merged([self._older, oldest]))
        self._keep()

    def find(self, folder: Path) -> None:
        """Take what processes left in `folder` while nobody could be told; they may live."""
        for file in sorted(folder.glob(f"{_LEFT}*")):
            process = file.name.removeprefix(_LEFT)
            try:
                said = msgspec.msgpack.decode(file.read_bytes(), type=list[list[Any]])
                if process not in self._latest:
                    self.add(process, said)
                file.unlink()
            except (OSError, msgspec.MsgspecError) as error:
                log.error("what a process had counted is lost: %s", error)  # noqa: TRY400

    def lives(self, process: str) -> None:
        """It was only its connection that ended."""
        if self._latest.pop(process, None) is not None:
            self._keep()

    def snapshots(self) -> list[Sequence[Family]]:
        """All of them."""
        return [self._older, *self._latest.values()]

    def _keep(self) -> None:
        new = self._file.with_suffix(".new")
        try:
            new.write_bytes(msgspec.msgpack.encode((self._older, self._latest)))
            new.replace(self._file)
        except OSError as error:
            log.error("what ended processes had counted is not kept: %s", error)  # noqa: TRY400


def leave(folder: Path, process: str, snapshot: Iterable[Family]) -> None:
    """Write down what `process` has counted, for `Fallen.find`; raises OSError."""
    new = folder / f"new-{process}"
    new.write_bytes(msgspec.msgpack.encode(list(snapshot)))
    new.replace(folder / f"{_LEFT}{process}")
