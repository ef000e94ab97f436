"""Engines' own counts come out under one schema, and what is not counted is not 0."""

from engine_adapters.remote.prometheus import parse_metrics
from engine_adapters.remote.reuse_counters import ReuseCounters, sglang_reuse, vllm_reuse


def test_vllm_by_source():
    text = """
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1000
vllm:prefix_cache_queries_total{engine="1",model_name="m"} 200
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 256
vllm:external_prefix_cache_hits_total{engine="0",model_name="m"} 768
vllm:prompt_tokens_cached_by_source_total{engine="0",source="device"} 200
vllm:prompt_tokens_cached_by_source_total{engine="1",source="device"} 56
vllm:prompt_tokens_cached_by_source_total{engine="0",source="external_unspecified"} 700
vllm:prompt_tokens_cached_by_source_total{engine="0",source="p2p"} 68
"""
    counted = vllm_reuse(parse_metrics(text))
    assert counted == ReuseCounters(1200, 1024, {"device": 256, "store": 768})


def test_an_older_vllm_tells_the_device_from_what_a_connector_brought():
    text = "vllm:prefix_cache_hits_total 256\nvllm:external_prefix_cache_hits_total 100\n"
    assert vllm_reuse(parse_metrics(text)) == ReuseCounters(None, 356, {"device": 256, "store": 100})


def test_sglang_by_source():
    text = """
sglang:prompt_tokens_total{is_streaming="false"} 100
sglang:prompt_tokens_total{is_streaming="true"} 50
sglang:cached_tokens_total{cache_source="device"} 30
sglang:cached_tokens_total{cache_source="host"} 20
sglang:cached_tokens_total{cache_source="storage_file"} 7
sglang:cached_tokens_total{cache_source="storage_mooncake"} 5
"""
    counted = sglang_reuse(parse_metrics(text))
    assert counted == ReuseCounters(150, 62, {"device": 30, "host": 20, "disk": 7, "store": 5})


def test_sglang_counts_no_cached_token_before_the_first():
    assert sglang_reuse(parse_metrics("sglang:prompt_tokens_total 6\n")) == ReuseCounters(6, 0, None)


def test_metrics_of_something_else_say_nothing():
    for read in (vllm_reuse, sglang_reuse):
        assert read(parse_metrics("requests_total 5\n")) == ReuseCounters(None, None, None)
