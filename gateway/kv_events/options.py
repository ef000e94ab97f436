"""Where replicas of one engine publish, from where each of them is asked."""

from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class KvEventOptions:
    """In an address, {host} and {port} stand for where the replica is asked, {name} for its name in the pool."""

    endpoint: str  # tcp://{host}:5557
    replay: str | None = None  # None: what was missed cannot be fetched again
    topic: str = ""  # what the engine's topic begins with
    kind: str = ""  # of the engine, which says what it must be started with; empty: not known

    def at(self, url: str, name: str = "") -> tuple[str, str | None]:
        """Both addresses for the replica `name` at `url`."""
        values = _values(url, name)
        return _filled(self.endpoint, values), None if self.replay is None else _filled(self.replay, values)


def apart(template: str) -> bool:
    """Whether it is another address for each replica."""
    return any(f"{{{each}}}" in template for each in ("host", "port", "name"))


def _values(url: str, name: str) -> dict[str, str]:
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return {"host": f"[{host}]" if ":" in host else host, "port": str(port), "name": name}


def _filled(template: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        template = template.replace(f"{{{name}}}", value)
    return template
