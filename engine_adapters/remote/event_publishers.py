"""Where engines say that they publish KV events: vLLM at `/kv_event_sources`, SGLang in its server's settings."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from engine_adapters.remote.relay import EventPublisher

_DEFAULT_ENDPOINT = "tcp://*:5557"  # of both
_MOST = 1024  # ranks
_EVERYWHERE = ("*", "::", "ipc://", "inproc://")  # what both of them bind


def of_vllm(sources: Mapping[str, Any]) -> tuple[EventPublisher, ...]:
    """One for each data-parallel rank."""
    found = [_publisher(each) for each in sources.values() if isinstance(each, Mapping)]
    return tuple(each for each in found if each is not None)


def of_sglang(info: Mapping[str, Any]) -> tuple[EventPublisher, ...]:
    """From the setting `kv_events_config`, which is JSON as text: one for each data-parallel rank, port behind port."""
    config = info.get("kv_events_config")
    if isinstance(config, str):
        try:
            config = orjson.loads(config)
        except orjson.JSONDecodeError:
            return ()
    found = _publisher(config) if isinstance(config, Mapping) else None
    if found is None:
        return ()
    ranks = info.get("dp_size")
    return tuple(
        _of_rank(found, rank) for rank in range(ranks if type(ranks) is int and 1 < ranks <= _MOST else 1)
    )


def _of_rank(first: EventPublisher, rank: int) -> EventPublisher:
    place, _, port = first.endpoint.rpartition(":")
    return replace(first, endpoint=f"{place}:{int(port) + rank}") if port.isdecimal() else first


def _publisher(config: Mapping[str, Any]) -> EventPublisher | None:
    """None: it is switched off, or goes where only the engine's own process hears it."""
    if config.get("publisher") != "zmq":
        return None
    endpoint, topic = config.get("endpoint", _DEFAULT_ENDPOINT), config.get("topic", "")
    if not isinstance(endpoint, str) or not isinstance(topic, str) or endpoint.startswith("inproc"):
        return None
    binds = config.get("bind")
    return EventPublisher(
        endpoint, topic, binds if isinstance(binds, bool) else any(each in endpoint for each in _EVERYWHERE)
    )
