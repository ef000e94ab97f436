"""Put as `sitecustomize` before a Python's own: it finds the standard library and what only_these.json lists.

Anything else is as if it were not installed: not to be imported, looked for, or found by its metadata.
"""

import json
import re
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

_LISTED = json.loads(Path(__file__).with_name("only_these.json").read_text())
_FILES = frozenset(_LISTED["files"])
_NAMES = frozenset(_LISTED["distributions"])
_OURS = tuple(f"{folder}/" for folder in _LISTED["ours"])
_STANDARD = tuple(f"{sysconfig.get_path(kind)}/" for kind in ("stdlib", "platstdlib"))
_SITE = ("/site-packages/", "/dist-packages/")


class OnlyThese:
    """The finders that were there before, less what is not listed."""

    def __init__(self, finders: Sequence[Any]) -> None:
        self._finders = finders

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """As the first finder that knows it, where it is listed."""
        for finder in self._finders:
            spec: ModuleSpec | None = finder.find_spec(name, path, target)
            if spec is not None:
                return spec if _listed(spec) else None
        return None

    def find_distributions(self, *args: Any, **options: Any) -> Iterator[Any]:
        """Metadata of what is listed."""
        for finder in self._finders:
            for found in getattr(finder, "find_distributions", lambda *_, **__: ())(*args, **options):
                if re.sub(r"[-_.]+", "-", found.metadata["Name"]).lower() in _NAMES:
                    yield found

    def invalidate_caches(self) -> None:
        """As all finders."""
        for finder in self._finders:
            getattr(finder, "invalidate_caches", lambda: None)()


def _listed(spec: ModuleSpec) -> bool:
    if spec.has_location and spec.origin is not None:
        if any(part in spec.origin for part in _SITE):
            return spec.origin in _FILES
        return spec.origin.startswith((*_OURS, *_STANDARD))
    folders = (
        spec.submodule_search_locations
    )  # of a package without code of its own; None of what is built in
    return folders is None or any(part in folder for folder in folders for part in _SITE)


sys.meta_path[:] = [OnlyThese(tuple(sys.meta_path))]
