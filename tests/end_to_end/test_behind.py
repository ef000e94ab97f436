"""A gateway in front of another one, each a real process: tenants of the outer one are apart in the inner one."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from gateway.ledger.opening import open_reader
from tests.end_to_end.running import ADMIN, KEYS, MODEL, Chain, Process, chain, embedded
from tests.waiting import PATIENCE_S, wait_until

FULL = {"x-kvgate-usage": "full"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("behind")


@pytest.fixture(scope="module")
def both(tiny_model: Callable[[str], Path], folder: Path) -> Iterator[Chain]:
    with chain(embedded(tiny_model("llama"), folder), folder) as it:
        wait_for_engine(it.outer)
        yield it


def wait_for_engine(gateway: Process) -> None:
    ready = gateway.url.removesuffix("/v1") + "/ready"
    wait_until(
        lambda: httpx.get(ready, timeout=PATIENCE_S).status_code == 200, f"it is ready: {gateway.lines}"
    )


def sdk(gateway: Process, tenant: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=gateway.url, api_key=KEYS[tenant], max_retries=0, timeout=120)


def ask(gateway: Process, tenant: str, prompt: Any, **more: Any) -> Any:
    """Usage of one completion."""
    create = sdk(gateway, tenant).completions.create
    return create(model=MODEL, prompt=prompt, max_tokens=1, **more).usage


def reused(gateway: Process, tenant: str, prompt: Any, **more: Any) -> int:
    return ask(gateway, tenant, prompt, **more).prompt_tokens_details.cached_tokens


def prompt(about: str) -> str:
    return f"{about}: " + "the sea is wide and the ships on it are many. " * 6


def rows(folder: Path, file: str) -> list[Any]:
    return list(open_reader(str(folder / file), {}).rows())


def test_a_prefix_is_reused_by_its_group_alone(both: Chain) -> None:
    text = prompt("warmed by blue")
    assert reused(both.outer, "blue", text) == 0
    warm = reused(both.outer, "blue", text)
    assert warm > 50
    assert reused(both.outer, "red", text) == 0
    assert reused(both.outer, "navy", text) == warm
    assert reused(both.outer, "red", text) == warm  # its own, by now
    assert reused(both.inner, "edge", text) == 0  # nor the gateway's own requests


def test_token_ids_pass_and_are_apart_too(both: Chain) -> None:
    ids = list(range(10, 110))
    assert reused(both.outer, "blue", ids) == 0
    assert reused(both.outer, "blue", ids) > 50
    assert reused(both.outer, "red", ids) == 0


def test_they_are_apart_on_the_tiers_of_a_running_engine(both: Chain) -> None:
    """What is older lies further down: after each step of what comes behind, one more of the old ones is looked at."""
    old = [prompt(f"kept {number}") for number in range(40)]
    for text in old:
        ask(both.outer, "blue", text)
    found: set[str] = set()
    for number, text in enumerate(old):
        assert reused(both.outer, "red", text) <= 32  # its own, which begin alike
        found |= ask(both.outer, "blue", text, extra_headers=FULL).kvgate["by_tier"].keys()
        if found >= {"device", "host"}:
            return
        ask(both.outer, "navy", prompt(f"filler {number}") * 4)
    pytest.fail(f"only {found}")


def test_they_are_apart_on_the_disk_that_a_new_engine_finds(
    tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    """A running engine would sooner compute so small a model's blocks than read them."""
    engine = embedded(tiny_model("llama"), tmp_path)
    text = prompt("lies on the disk")
    with chain(engine, tmp_path) as it:
        wait_for_engine(it.outer)
        for _ in range(3):
            ask(it.outer, "blue", text)
        wait_until(lambda: on_disk(it.inner), "blocks on the disk")
    with chain(engine, tmp_path) as it:
        wait_for_engine(it.outer)
        # First of all, while the engine does not know yet how fast it computes.
        usage = ask(it.outer, "blue", text, extra_headers=FULL)
        assert usage.kvgate["by_tier"]["disk"] > 50
        assert reused(it.outer, "red", text) == 0
        assert reused(it.outer, "navy", text) > 50


def on_disk(gateway: Process) -> bool:
    """Whether blocks were copied to the engine's disk."""
    headers = {"authorization": f"Bearer {ADMIN}"}
    text = httpx.get(f"{gateway.admin}/metrics", headers=headers, timeout=PATIENCE_S).text
    name = "kvgate_engine_cache_transfer_seconds_count{"
    return any(line.startswith(name) and 'target="disk"' in line for line in text.splitlines())


def test_what_is_asked_for_upstream_does_not_reach_a_client(both: Chain) -> None:
    text = prompt("plain")
    plain = ask(both.outer, "blue", text)
    assert not hasattr(plain, "kvgate")
    told = ask(both.outer, "blue", text, extra_headers=FULL).kvgate
    assert told["by_tier"] == {"device": told["reused"]}
    assert (told["status"], told["block_size"]) == ("reported", 16)
    stream = sdk(both.outer, "blue").completions.create(model=MODEL, prompt=text, max_tokens=2, stream=True)
    assert all(chunk.usage is None for chunk in stream)
    counted = sdk(both.outer, "blue").completions.create(
        model=MODEL, prompt=text, max_tokens=2, stream=True, stream_options={"include_usage": True}
    )
    (usage,) = [chunk.usage for chunk in counted if chunk.usage]
    assert usage.prompt_tokens_details.cached_tokens > 50
    assert not hasattr(usage, "kvgate")


def test_both_ledgers_name_the_tenant_and_the_tiers(both: Chain, folder: Path) -> None:
    text = prompt("for the ledgers")
    for _ in range(2):
        ask(both.outer, "red", text)

    def last(file: str, tenant: str) -> Any:
        return next((row for row in rows(folder, file) if row.tenant == tenant and row.reused), None)

    wait_until(lambda: last("outer.db", "red") and last("inner.db", "edge/red"), "rows")
    assert last("outer.db", "red").by_tier == last("inner.db", "edge/red").by_tier
    assert last("outer.db", "red").by_tier["device"] > 50


def test_who_is_no_gateway_is_not_believed(both: Chain) -> None:
    """Neither answered as if it had been heeded, nor a way into another one's cache."""
    for gateway, tenant in ((both.outer, "red"), (both.outer, "blue")):
        with pytest.raises(openai.BadRequestError, match="another kvgate alone"):
            ask(gateway, tenant, "x", extra_headers={"x-kvgate-salt": "0123456789abcdef"})
    with pytest.raises(openai.BadRequestError, match="no known form"):
        ask(both.inner, "edge", "x", extra_headers={"x-kvgate-salt": "short"})


def test_a_tenant_is_forgotten_in_the_inner_one_too(both: Chain, folder: Path) -> None:
    mine, theirs = prompt("red keeps this"), prompt("blue keeps that")
    ask(both.outer, "red", mine)
    ask(both.outer, "blue", theirs)
    wait_until(lambda: any(row.tenant == "edge/red" for row in rows(folder, "inner.db")), "rows")
    command = [sys.executable, "-m", "gateway", "purge", "--url", both.outer.admin, "--json"]
    environ = {**os.environ, "KVGATE_ADMIN_KEY": ADMIN}
    done = subprocess.run(
        [*command, "--tenant", "red"], capture_output=True, text=True, env=environ, check=False
    )
    told = json.loads(done.stdout)
    assert told["complete"], told
    assert told["places"]["engines"]["count"] > 3
    assert not any(row.tenant == "edge/red" for row in rows(folder, "inner.db"))
    assert reused(both.outer, "red", mine) == 0
    assert reused(both.outer, "blue", theirs) > 50
    done = subprocess.run(
        [*command, "--tenant", "blue"], capture_output=True, text=True, env=environ, check=False
    )
    assert "others of its group share it" in json.loads(done.stdout)["places"]["engines"]["detail"]
    assert done.returncode == 1
    assert reused(both.outer, "navy", theirs) > 50
