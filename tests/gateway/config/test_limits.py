"""`limits:`, `queue:`, `redis:` and `memory:`: what they come to, and what is refused by the key's name."""

from typing import Any

import pytest

from gateway.config.build import settings_of, shared_of
from gateway.config.errors import ConfigError
from gateway.config.limits import LimitsConfig
from gateway.config.load import check_config
from gateway.config.model import Config
from gateway.limits.tenant_limits import TenantLimits

ENGINES = [
    {"name": "a", "kind": "vllm", "url": "http://127.0.0.1:1", "models": ["m"], "max_running": 8},
    {"name": "b", "kind": "openai", "url": "http://127.0.0.1:2", "models": ["n"]},
]
REDIS = {"url": "redis://127.0.0.1:6379/0"}


def config(**keys: Any) -> Config:
    return check_config({"engines": ENGINES, **keys})


def refused(**keys: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        shared_of(config(**keys), {"SHORT": "short"})
    return "\n".join(raised.value.messages)


def test_limits_of_the_file_are_those_of_everyone() -> None:
    settings = settings_of(
        config(
            limits={"requests_per_minute": 60, "max_body_mib": 2, "reused_weight": 0.1},
            queue={"max_waiting": 10, "max_wait_s": 5},
        )
    )
    assert settings.limits == TenantLimits(requests_per_minute=60, max_body_bytes=2 << 20, reused_weight=0.1)
    assert (settings.queue.max_waiting, settings.queue.max_wait_s) == (10, 5)
    assert settings.max_running == {"a": 8}


def test_a_tenant_has_the_limits_of_everyone_where_it_says_nothing_else() -> None:
    everyone = TenantLimits(requests_per_minute=60, tokens_per_minute=1000, weight=2)
    mine = LimitsConfig.model_validate({"requests_per_minute": 600, "tokens_per_minute": None})
    assert mine.over(everyone) == TenantLimits(requests_per_minute=600, weight=2)
    few = TenantLimits(max_prompts=16)
    assert mine.over(few).max_prompts == 16
    assert LimitsConfig.model_validate({"max_prompts": None}).over(few).max_prompts is None
    assert LimitsConfig().over(everyone) == everyone


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"limits": {"requests_per_minute": 0}}, "limits.requests_per_minute"),
        ({"limits": {"max_prompts": 0}}, "limits.max_prompts"),
        ({"limits": {"reused_weight": 1.5}}, "limits.reused_weight"),
        ({"limits": {"highest_priority": 2}}, "limits.highest_priority"),
        ({"limits": {"request_per_minute": 5}}, "limits.request_per_minute: there is no such key"),
        ({"queue": {"max_wait_s": 0}}, "queue.max_wait_s"),
        ({"redis": {"url": "http://x"}}, "redis.url: write redis://HOST:PORT/DB"),
        ({"redis": {"url": "redis://:pw@x:1"}}, "redis.url: no password stands in the file"),
        ({"redis": {"url": "redis://x:1/0?password=pw"}}, "redis.url: no password stands in the file"),
        ({"redis": {**REDIS, "password": "pw"}}, "redis.password: a key does not stand in the file"),
        ({"redis": {**REDIS, "password": {"env": "NONE"}}}, "redis.password: the environment has no NONE"),
        ({"redis": {**REDIS, "prefix": "a*b"}}, "redis.prefix"),
        ({"memory": {"store": "redis"}}, "memory.store: redis needs redis:"),
        (
            {"redis": REDIS, "memory": {"store": "redis", "secret": {"env": "SHORT"}}},
            "memory.secret: it is shorter than 16 bytes",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(keys: dict[str, Any], message: str) -> None:
    said = refused(**keys)
    assert message in said
    assert "pw" not in said.replace("password", "")


@pytest.mark.parametrize(
    "url", ["redis://h", "rediss://h:6380/2", "redis://user@h:1/0", "unix:///run/redis.sock"]
)
def test_urls_of_redis(url: str) -> None:
    assert callable(shared_of(config(redis={"url": url}), {}))


def test_without_redis_nothing_is_shared() -> None:
    shared = shared_of(config(), {})()
    assert (shared.limits, shared.memory) == (None, None)
