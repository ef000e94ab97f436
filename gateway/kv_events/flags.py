"""What an engine must be started with so that it publishes what its cache holds."""

import json

USUAL = "tcp://*:5557"  # where both publish if nobody says otherwise
KINDS = ("vllm", "sglang")


def events_flag(kind: str, endpoint: str = USUAL, replay: str | None = None, topic: str = "") -> str | None:
    """The flag for an engine of this kind that is followed at `endpoint`; None: engines of its kind publish none."""
    if kind not in KINDS:
        return None
    config: dict[str, object] = {"enable_kv_cache_events": True} if kind == "vllm" else {}
    config |= {"publisher": "zmq", "endpoint": _bound(endpoint)}
    config |= {} if replay is None else {"replay_endpoint": _bound(replay)}
    config |= {"topic": topic} if topic else {}
    return f"--kv-events-config '{json.dumps(config)}'"


def _bound(endpoint: str) -> str:
    """The engine's side of an address: where it names a single host, engines connect instead of binding."""
    scheme, _, place = endpoint.partition("://")
    return f"tcp://*:{place.rpartition(':')[2]}" if scheme == "tcp" else endpoint
