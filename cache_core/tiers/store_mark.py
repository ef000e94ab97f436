"""Whether a folder is the shared store: a mount that is away leaves another one in its place, or none."""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from cache_core.tiers.files import Files, make_private, sync_folder

log = logging.getLogger(__name__)

MARK = ".kvgate-store"  # in the folder itself
_LOOK_EVERY = 5.0  # seconds between two looks at a folder without it
_TELL_EVERY = 60.0  # and between two lines about that
_OWN_OF_FILE_SYSTEMS = frozenset({"lost+found", ".snapshot", ".snapshots"})

Clock = Callable[[], float]


class StoreMark:
    """A file in the folder says that this is the store. It is made at the start.

    Where the folder is said to be `mounted`, it is made on a mount alone, at the start or when one appears while the
    process runs: on an empty one. One that has files and no mark is somebody else's, or a store whose mark was lost:
    who runs it has to say so, by making the mark. So it is for every folder that is not said to be mounted.

    Args:
        mounted: whether the folder is, or lies in, something that is mounted.
    """

    def __init__(self, folder: Path, files: Files, mounted: bool, clock: Clock = time.monotonic) -> None:
        self._folder = folder
        self._files = files
        self._mounted = mounted
        self._clock = clock
        self._lock = Lock()  # guards what follows
        self._device: int | None = None  # file system that has the mark
        self._looked_at = float("-inf")
        self._told_at = float("-inf")
        self._away = False

    def make(self) -> None:
        """At the start. Raises OSError: the folder cannot be made or entered."""
        if not self._mounted:
            make_private(self._folder)
            self._put()
        elif not self.is_there():
            log.warning("the store begins without its folder %s", self._folder)

    def is_there(self) -> bool:
        """Whether the folder is the store now. From any thread; may touch the file system."""
        if not self._has_mark():
            return self._look()
        if self._away:
            self._back()
        return True

    def _has_mark(self) -> bool:
        """Whether it is there; of what is mounted, on the file system on which it was found."""
        try:
            device = (self._folder / MARK).stat().st_dev
        except OSError:
            return False
        return not self._mounted or device == self._device

    def _look(self) -> bool:
        """Find out why it is not, and mend what may be mended."""
        with self._lock:
            if self._has_mark():  # another thread was here
                return True
            now = self._clock()
            if now - self._looked_at < _LOOK_EVERY:
                return False
            self._looked_at = now
            self._away = True
            if not self._mounted:
                self._tell(
                    "is not the store: it has no %s. Mount it; or, if this is to be the store, make that file",
                    MARK,
                )
                return False
            if mount_of(self._folder) is None:
                self._tell("is not the store: nothing is mounted there")
                return False
            try:
                found = self._adopted()
            except OSError as error:
                self._tell("cannot be used: %s", error)
                return False
            if not found:
                self._tell(
                    "is not the store: what is mounted there has files, but no %s. If it is the store, make that file",
                    MARK,
                )
                return False
        self._back()
        return True

    def _adopted(self) -> bool:
        """Whether what is mounted is the store now: it has the mark, or was empty and got it."""
        make_private(self._folder)
        if not (self._folder / MARK).exists():
            if set(os.listdir(self._folder)) - _OWN_OF_FILE_SYSTEMS:
                return False
            self._put()
            log.warning("%s, which was empty, is the store from now on", self._folder)
        self._device = (self._folder / MARK).stat().st_dev
        return True

    def _put(self) -> None:
        os.close(self._files.open(self._folder / MARK, os.O_RDONLY | os.O_CREAT))
        sync_folder(self._folder)

    def _back(self) -> None:
        with self._lock:
            told = self._away and self._told_at > float("-inf")
            self._away, self._looked_at, self._told_at = False, float("-inf"), float("-inf")
        if told:
            log.warning("%s is the store again", self._folder)

    def _tell(self, why: str, *values: object) -> None:
        """Once in a while. Under the lock."""
        now = self._clock()
        if now - self._told_at >= _TELL_EVERY:
            self._told_at = now
            log.warning(
                f"%s {why}; until then nothing is written to it or found in it", self._folder, *values
            )


def mount_of(folder: Path) -> Path | None:
    """What is mounted that `folder` is, or lies in; None: nothing but the root file system."""
    for place in (folder.absolute(), *folder.absolute().parents):
        if place.parent == place:
            return None
        if os.path.ismount(place):
            return place
    return None
