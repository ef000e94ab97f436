"""`kvgate doctor --isolation` on real servers: two kvgates in a row over tiers, and engines with a shared cache."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.running import KEYS, TENANTS, Chain, chain, embedded, serving
from tests.gateway.reports.doctor.lying_engine import LyingEngine, served
from tests.llama_cpp_server import LlamaCppServer
from tests.tiny_models import save_tiny_model


def examined(url: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "gateway", "doctor", url.removesuffix("/v1"), "--isolation", "--json"]
    environ = {**os.environ, **{f"KEY_{name.upper()}": key for name, key in KEYS.items()}}
    done = subprocess.run(
        [*command, "--trials", "12", *arguments],
        capture_output=True, text=True, env=environ, timeout=600, check=False,
    )  # fmt: skip
    assert not any(key in done.stdout + done.stderr for key in KEYS.values())
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def over_tiers(folder: Path) -> AbstractContextManager[Chain]:
    # Wide for its few KV heads: computing a block takes so much longer than loading it that loading is what is chosen.
    wide: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 1024, "num_key_value_heads": 1}
    model = save_tiny_model("llama", folder / "model", max_position_embeddings=4096, **wide)
    return chain(embedded(model, folder, kv_cache_gib=0.0035, host_cache_gib=0.005), folder)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    with over_tiers(tmp_path_factory.mktemp("isolation")) as it:
        yield it


def test_tenants_of_an_outer_gateway_are_apart_on_the_tiers_of_the_inner_one(
    both: Chain, tmp_path: Path
) -> None:
    arguments = ["--key-a", "env:KEY_BLUE", "--key-b", "env:KEY_RED", "--key-mate", "env:KEY_NAVY"]
    arguments += ["--words", "200", "--fill-tokens", "60000"]
    code, found = examined(both.outer.url, *arguments)
    if [each["tier"] for each in found["findings"]] == ["device"]:
        # An engine whose first loads were held up by the machine takes computing for quicker: another one, then.
        with over_tiers(tmp_path) as another:
            code, found = examined(another.outer.url, *arguments)
    # Whether times decide is for the machine's load to say; that nothing is reused, and nothing leaks, is not.
    tiers = {each["tier"]: each for each in found["findings"]}
    assert "device" in tiers, found
    assert tiers.keys() & {"host", "disk"}, found  # which of them has the prefix is for the cache to say
    assert {each["verdict"] for each in tiers.values()} <= {"isolated", "cannot tell"}, found
    assert code == {"isolated": 0, "cannot tell": 3}[found["verdict"]]
    assert {each["other_reused"] for each in tiers.values()} <= {0, 16}, found
    assert min(each["own_reused"] for each in tiers.values()) > 1000, found
    assert found["mate"]["shares"]


def test_two_tenants_of_one_group_are_found_to_share(both: Chain) -> None:
    arguments = ["--key-a", "env:KEY_BLUE", "--key-b", "env:KEY_NAVY"]
    code, found = examined(both.outer.url, *arguments, "--words", "200", "--tier", "device")
    assert (code, found["verdict"], found["by"]) == (1, "leaks", ["reuse"])


def test_a_shared_cache_of_llama_cpp_is_found_to_leak(llama_cpp: LlamaCppServer, tmp_path: Path) -> None:
    engine = {"name": "llama", "kind": "llama_cpp", "url": llama_cpp.url, "shared_cache": True}
    config = {
        "engines": [engine], "ledger": {"url": "off"}, "tenants": TENANTS, "salt_secret": {"env": "SALT"},
    }  # fmt: skip
    with serving(tmp_path / "kvgate.yaml", config) as gateway:
        arguments = ["--key-a", "env:KEY_BLUE", "--key-b", "env:KEY_RED"]
        code, found = examined(gateway.url, *arguments, "--words", "100", "--tier", "device")
    assert (code, found["verdict"], found["by"]) == (1, "leaks", ["reuse"]), found
    assert found["findings"][0]["other_reused"] > 80


@pytest.mark.parametrize("says", ["nothing", "zero"])
def test_a_shared_cache_that_denies_it_is_found_to_leak_by_times(says: Any, tmp_path: Path) -> None:
    for _ in range(6):
        engine = LyingEngine(says=says, word_seconds=3e-4, salts="ignored")
        code, found = examined_behind_a_gateway(engine, tmp_path)
        if code != 3:  # where the machine is busy enough, times cannot tell, and it says so
            break
    assert (code, found["verdict"], found["by"]) == (1, "leaks", ["times"]), found
    (finding,) = found["findings"]
    assert finding["other_reused"] == {"nothing": None, "zero": 0}[says]
    assert [each["by"] for each in finding["suspicions"]] == ["times"]
    assert finding["suspicions"][0]["again_p"] < 0.001


def test_a_cache_that_says_nothing_and_keeps_tenants_apart_is_not_found_to_leak(tmp_path: Path) -> None:
    code, found = examined_behind_a_gateway(LyingEngine(says="nothing", word_seconds=3e-4), tmp_path)
    assert code in (0, 3), found
    assert found["findings"][0]["other_reused"] is None


def examined_behind_a_gateway(engine: LyingEngine, folder: Path) -> tuple[int, dict[str, Any]]:
    with served(engine) as url:
        behind = {"name": "behind", "kind": "vllm", "url": url, "models": ["m"]}
        config = {
            "engines": [behind], "ledger": {"url": "off"}, "tenants": TENANTS, "salt_secret": {"env": "SALT"},
        }  # fmt: skip
        with serving(folder / "kvgate.yaml", config) as gateway:
            arguments = ["--key-a", "env:KEY_BLUE", "--key-b", "env:KEY_RED", "--words", "200"]
            return examined(gateway.url, *arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--key-a", "env:KEY_RED"], "Two tenants are needed"),
        (["--key-a", "env:KEY_RED", "--key-b", "KEY_RED"], "Two of the keys are the same"),
        (["--key-a", "env:NOT_THERE", "--key-b", "KEY_RED"], "no key in the environment variable NOT_THERE"),
        (["--key-a", "file:/nowhere", "--key-b", "KEY_RED"], "cannot be read from /nowhere"),
        (["--kind", "openai"], "takes no salts that could stand for tenants"),
        (["--kind", "vllm", "--tier", "roof"], "no tier roof"),
    ],
)
def test_what_cannot_be_examined_is_said(both: Chain, arguments: list[str], said: str) -> None:
    command = [sys.executable, "-m", "gateway", "doctor", both.outer.url, "--isolation", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "KEY_RED": KEYS["red"]}, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
