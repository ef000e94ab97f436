"""One tenant floods the embedded engine's cache or pins everything in it; another one's prefix stays."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.tenants.keys import hash_of
from tests.end_to_end.test_tenants import KEYS, MODEL, Gateway

FLOOD = 16  # prompts, more than the pool holds


@contextmanager
def serving(model: Path, folder: Path, **engine: object) -> Iterator[Gateway]:
    config = {
        "engines": [
            {
                "kind": "embedded", "model": str(model), "served_model_name": MODEL, "kv_cache_gib": 0.001,
                **engine,
            }
        ],
        "ledger": {"url": str(folder / "rows.db")},
        "tenants": [{"name": name, "keys": [hash_of(KEYS[name])]} for name in ("red", "blue")],
        "salt_secret": {"env": "SALT"},
        "admin": {"port": 0, "key": {"env": "ADMIN"}},
    }  # fmt: skip
    file = folder / "kvgate.yaml"
    file.write_text(json.dumps(config))
    it = Gateway(file, folder / "rows.db")
    try:
        yield it
    finally:
        it.process.terminate()
        it.process.wait(60)


def prompt(number: int) -> str:
    return f"{number} of them: " + "the sea is wide and the ships on it are many. " * 6


def left_of_blue(gateway: Gateway, number: int, **hints: object) -> int:
    """What blue reuses of a prompt that it sent once before red came."""
    gateway.ask("blue", prompt(number))
    for other in range(100, 100 + FLOOD):
        for _ in range(2):
            gateway.ask("red", prompt(other), **hints)
    return gateway.ask("blue", prompt(number))


def test_a_tenant_that_floods_the_cache_or_pins_all_it_sends_takes_nothing_from_another(
    tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    with serving(tiny_model("llama"), tmp_path) as gateway:
        assert left_of_blue(gateway, 1) > 50
        pinned = {"extra_body": {"kvgate": {"pin_ttl": 600, "priority": 1}}}
        assert left_of_blue(gateway, 2, **pinned) > 50


def test_without_shares_a_flood_takes_all(tiny_model: Callable[[str], Path], tmp_path: Path) -> None:
    with serving(tiny_model("llama"), tmp_path, scope_share=1) as gateway:
        assert left_of_blue(gateway, 1) == 0
