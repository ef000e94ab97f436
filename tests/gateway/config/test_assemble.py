"""What has not changed in a configuration stays what it is, with all that it has learned."""

from typing import Any

import pytest

from gateway.config.assemble import Assembly, assembled
from gateway.config.errors import ConfigError
from gateway.config.load import check_config

URLS = ["http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3"]


def assembly(before: Assembly | None = None, engine: dict[str, Any] | None = None, **keys: Any) -> Assembly:
    one = {"name": "a", "kind": "vllm", "replicas": URLS[:2], **(engine or {})}
    one = {key: value for key, value in one.items() if value is not None}
    return assembled(check_config({"engines": [one], **keys}), keys_of, before)


keys_of = {"KEY": "first-key"}


@pytest.mark.parametrize(
    ("engine", "keys"),
    [
        ({}, {}),
        (
            {},
            {
                "usage": "full",
                "canon_policy": "off",
                "clients": {"max_in_flight": 3},
                "limits": {"concurrency": 1},
            },
        ),
        ({"max_running": 4}, {}),
    ],
    ids=["nothing changes", "other keys change", "a bound that requests look up"],
)
def test_a_pool_stays(engine: dict[str, Any], keys: dict[str, Any]) -> None:
    first = assembly()
    second = assembly(first, engine, **keys)
    assert second.configured.pools == first.configured.pools
    assert second.fresh(first) == []


@pytest.mark.parametrize(
    ("engine", "keys", "router_stays"),
    [
        ({"replicas": URLS}, {}, True),
        ({"connect_s": 1}, {}, True),
        ({"cache_tokens": 9999}, {}, False),
        ({"replicas": None, "url": URLS[0]}, {}, False),
        ({}, {"routing": {"policy": "round_robin"}}, False),
    ],
    ids=["another replica", "another wait", "another size", "another place", "another policy"],
)
def test_a_pool_that_changes_keeps_its_router_where_that_is_still_true(
    engine: dict[str, Any], keys: dict[str, Any], router_stays: bool
) -> None:
    first = assembly()
    second = assembly(first, engine, **keys)
    (old,), (new,) = first.configured.pools, second.configured.pools
    assert new is not old
    assert (new.router is old.router) == router_stays


def test_a_name_that_leads_elsewhere_has_no_past() -> None:
    first = assembly(None, {"replicas": [{"name": "x", "url": URLS[0]}]})
    second = assembly(first, {"replicas": [{"name": "x", "url": URLS[1]}]})
    assert second.configured.pools[0].router is not first.configured.pools[0].router


def test_another_secret_makes_another_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    first = assembly(None, {"key": {"env": "KEY"}})
    assert assembly(first, {"key": {"env": "KEY"}}).configured.pools == first.configured.pools
    monkeypatch.setitem(keys_of, "KEY", "second-key")
    assert assembly(first, {"key": {"env": "KEY"}}).configured.pools != first.configured.pools
    assert "second-key" not in repr(assembly(first, {"key": {"env": "KEY"}}))


def test_what_knows_keys_stays_while_only_engines_change() -> None:
    tenants = {"tenants": [{"name": "t", "keys": ["0" * 64]}]}
    first = assembly(**tenants)
    assert assembly(first, {"connect_s": 1}, **tenants).configured.tenants is first.configured.tenants
    assert assembly(first, usage="full", **tenants).configured.tenants is not first.configured.tenants


def test_a_secret_that_is_missing_changes_nothing() -> None:
    first = assembly()
    with pytest.raises(ConfigError, match="NOT_THERE"):
        assembly(first, {"key": {"env": "NOT_THERE"}})
