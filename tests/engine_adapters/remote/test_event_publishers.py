"""Where engines publish KV events is read as they say it, and nothing is made of what they do not say."""

import json
from typing import Any

import pytest

from engine_adapters.remote.event_publishers import of_sglang, of_vllm
from engine_adapters.remote.relay import EventPublisher

ZMQ = {"publisher": "zmq", "endpoint": "tcp://*:5600", "topic": "kv"}


def test_vllm_names_one_for_each_rank():
    sources = {"0": ZMQ, "1": {**ZMQ, "endpoint": "tcp://*:5601"}}
    assert of_vllm(sources) == (EventPublisher("tcp://*:5600", "kv"), EventPublisher("tcp://*:5601", "kv"))


@pytest.mark.parametrize(
    "config", [{}, {"publisher": "null"}, {**ZMQ, "endpoint": 5}, {**ZMQ, "endpoint": "inproc://x"}]
)
def test_what_is_off_or_heard_by_nobody_else_is_none(config: dict[str, Any]):
    assert of_vllm({"0": config}) == of_sglang({"kv_events_config": json.dumps(config)}) == ()


@pytest.mark.parametrize(
    "info", [{}, {"kv_events_config": None}, {"kv_events_config": ""}, {"kv_events_config": "{"}]
)
def test_sglang_without_them_has_none(info: dict[str, Any]):
    assert of_sglang(info) == ()


def test_the_default_address_is_both_engines_own():
    assert of_sglang({"kv_events_config": '{"publisher": "zmq"}'}) == (EventPublisher("tcp://*:5557"),)


@pytest.mark.parametrize(
    ("config", "binds"),
    [
        ({"endpoint": "tcp://*:1"}, True),
        ({"endpoint": "tcp://[::]:1"}, True),
        ({"endpoint": "ipc:///run/x"}, True),
        ({"endpoint": "tcp://collector:1"}, False),
        ({"endpoint": "tcp://127.0.0.1:1", "bind": True}, True),
        ({"endpoint": "tcp://*:1", "bind": False}, False),
    ],
)
def test_who_binds_is_as_the_engines_do_it(config: dict[str, Any], binds: bool):
    (found,) = of_vllm({"0": {"publisher": "zmq", **config}})
    assert found.binds is binds


@pytest.mark.parametrize(
    ("endpoint", "ranks", "found"),
    [
        ("tcp://*:5557", 3, ["tcp://*:5557", "tcp://*:5558", "tcp://*:5559"]),
        ("tcp://*:5557", 1, ["tcp://*:5557"]),
        ("tcp://*:5557", None, ["tcp://*:5557"]),
        ("tcp://*:5557", "two", ["tcp://*:5557"]),
        ("tcp://*:5557", 10**9, ["tcp://*:5557"]),
        ("ipc:///run/x", 2, ["ipc:///run/x", "ipc:///run/x"]),
    ],
)
def test_sglang_has_one_for_each_rank(endpoint: str, ranks: object, found: list[str]):
    info = {"kv_events_config": json.dumps({"publisher": "zmq", "endpoint": endpoint}), "dp_size": ranks}
    assert [each.endpoint for each in of_sglang(info)] == found
