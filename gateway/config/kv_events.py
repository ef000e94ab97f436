"""`kv_events:` of an engine: where its replicas publish what they cache."""

from typing import Annotated

from pydantic import Field, field_validator, model_validator

from gateway.config.base import ConfigModel
from gateway.config.extras import need
from gateway.kv_events.options import KvEventOptions

_ADDRESS = (
    r"^(tcp://(\{host\}|\{name\}|[A-Za-z0-9_.-]+|\[[0-9a-fA-F:.]+\]):([0-9]{1,5}|[0-9]{0,2}\{port\})"
    r"|ipc://([^\s{}]|\{name\}|\{port\}){1,90})$"
)
Port = Annotated[int, Field(ge=1, le=65535)]


class KvEventsConfig(ConfigModel):
    """A port of each replica's host, or an address in which {host}, {port} and {name} stand for the replica's own."""

    port: Port | None = None
    replay_port: Port | None = None
    endpoint: Annotated[str, Field(pattern=_ADDRESS)] | None = None
    replay_endpoint: Annotated[str, Field(pattern=_ADDRESS)] | None = None
    topic: Annotated[str, Field(max_length=256)] = ""  # events of topics that begin with it; empty: all

    @model_validator(mode="after")
    def _one_place(self) -> "KvEventsConfig":
        if (self.port is None) == (self.endpoint is None):
            raise ValueError("write port, or endpoint where each replica has another address")
        if self.replay_port is not None and self.replay_endpoint is not None:
            raise ValueError("write replay_port or replay_endpoint, not both")
        return self

    @field_validator("endpoint", "replay_endpoint")
    @classmethod
    def _port_there_is(cls, given: str | None) -> str | None:
        port = (given or "").rpartition(":")[2]
        if port.isdigit() and not 0 < int(port) < 65536:
            raise ValueError("there are the ports 1 to 65535")
        return given

    def options(self, path: str, kind: str = "") -> KvEventOptions:
        """The same; raises ConfigError, which names `path`, where the package is missing."""
        need(path, "events")
        endpoint = self.endpoint or f"tcp://{{host}}:{self.port}"
        replay = self.replay_endpoint or (
            None if self.replay_port is None else f"tcp://{{host}}:{self.replay_port}"
        )
        return KvEventOptions(endpoint, replay, self.topic, kind)
