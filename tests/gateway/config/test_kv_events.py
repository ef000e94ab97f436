"""`kv_events:` says where each replica publishes, and refuses what could not be heard or used."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gateway.config.engines import SelfHosted


def engine(**more: Any) -> SelfHosted:
    given = {
        "kind": "vllm",
        "name": "v",
        "tokenizer": Path("/t"),
        "replicas": ["http://a:8000", "http://[::1]:80"],
    }
    return SelfHosted(**(given | more))


def test_ports_are_those_of_each_replica_s_host() -> None:
    options = engine(kv_events={"port": 5557, "replay_port": 5558, "topic": "kv"}).kv_events.options("k")
    assert options.at("http://10.0.0.1:8000") == ("tcp://10.0.0.1:5557", "tcp://10.0.0.1:5558")
    assert options.at("http://[::1]:8000") == ("tcp://[::1]:5557", "tcp://[::1]:5558")
    assert options.topic == "kv"


def test_addresses_are_filled_in_for_each_replica() -> None:
    given = {"endpoint": "tcp://{host}:1{port}", "replay_endpoint": "ipc:///run/{name}"}
    assert engine(kv_events=given).kv_events.options("k").at("http://h:8000", "one") == (
        "tcp://h:18000",
        "ipc:///run/one",
    )


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"kv_events": {}}, "write port"),
        ({"kv_events": {"port": 1, "endpoint": "tcp://{host}:1"}}, "write port"),
        ({"kv_events": {"port": 70000}}, "port"),
        ({"kv_events": {"endpoint": "tcp://{host}:70000"}}, "1 to 65535"),
        ({"kv_events": {"endpoint": "http://{host}:1"}}, "pattern"),
        ({"kv_events": {"port": 1, "replay_port": 2, "replay_endpoint": "tcp://{host}:2"}}, "not both"),
        ({"kv_events": {"endpoint": "tcp://h:1"}}, "addresses of their own"),
        ({"kv_events": {"port": 1}, "tokenizer": None}, "write tokenizer"),
        ({"kv_events": {"port": 1}, "kind": "llama_cpp"}, "publishes none"),
    ],
)
def test_what_cannot_work_is_refused(more: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        engine(**more)
