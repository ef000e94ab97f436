"""A body that is edited without touching the one that came in."""

from typing import Any

from canon.requests.paths import Path


class Draft:
    """Copies only the containers on the way to what is set; everything else is shared with the original."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.original = body
        self.body = body
        self.version = 0  # counts what was set
        self._own: set[int] = set()  # ids of containers made here, kept alive by `body`

    @property
    def changed(self) -> bool:
        return self.body is not self.original

    def get(self, path: Path) -> Any:
        """The value at `path`. Raises KeyError, IndexError or TypeError where there is none."""
        value: Any = self.body
        for step in path:
            value = value[step]
        return value

    def set(self, path: Path, value: Any) -> None:
        """Put `value` at `path`, whose parent must exist; a list takes it at an index it has, or at its end."""
        self.version += 1
        self.body = self._owned(self.body)
        parent: Any = self.body
        for step in path[:-1]:
            parent[step] = child = self._owned(parent[step])
            parent = child
        if isinstance(parent, list) and path[-1] == len(parent):
            parent.append(value)
        else:
            parent[path[-1]] = value

    def _owned(self, container: Any) -> Any:
        if id(container) in self._own:
            return container
        copied = container.copy()
        self._own.add(id(copied))
        return copied
