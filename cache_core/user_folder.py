"""Where a user's rebuildable files are kept."""

import os
from collections.abc import Mapping
from pathlib import Path


def cache_dir(environ: Mapping[str, str]) -> Path:
    """KVGATE_CACHE_DIR, else XDG_CACHE_HOME/kvgate, else ~/.cache/kvgate."""
    if own := environ.get("KVGATE_CACHE_DIR"):
        return Path(own).expanduser().absolute()
    xdg = environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says that a relative path is to be ignored.
    base = Path(xdg) if os.path.isabs(xdg) else Path(environ.get("HOME") or Path.home()) / ".cache"
    return base / "kvgate"
