"""Scripts that the server runs as one step."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files


@dataclass(frozen=True)
class Script:
    """Lua, which is sent once and named by its hash from then on."""

    source: str

    @cached_property
    def sha(self) -> str:
        """What the server calls it."""
        return hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()

    @classmethod
    def packaged(cls, package: str, *names: str) -> "Script":
        """Files of a package of ours, one behind the other."""
        return cls("".join((files(package) / name).read_text("utf-8") for name in names))
