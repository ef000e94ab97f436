"""`kvgate serve --config` and `kvgate config check`, as processes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from gateway.commands.config import check
from gateway.commands.config.show import shown
from gateway.config.assemble import assembled
from gateway.config.effective import digest
from gateway.config.load import load_config
from gateway.config.model import Config
from gateway.config.schema import schema_text
from gateway.ledger.opening import open_reader
from tests.gateway.relay.fake_engine import MODEL, fake_engine, whole

STAND_IN = Path(__file__).parents[2] / "engine_adapters" / "sglang_process" / "stand_in"
CHAT = "/v1/chat/completions"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "A prompt of some length. " * 20}]}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "gateway", *arguments]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kvgate.yaml"


def test_a_file_is_served_and_its_ledger_written(file: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "rows.db"
    with fake_engine(lambda connection, _: connection.reply(whole(0))) as engine:
        file.write_text(
            f"engines:\n  - {{name: mine, kind: openai, url: '{engine.url}', key: {{env: MY_KEY}}}}\n"
            f"ledger: {{url: '{ledger}', keep: 30d}}\nusage: full\n"
        )
        child = subprocess.Popen(
            command("serve", "--config", str(file), "--port", "0", "--json"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "MY_KEY": "sk-of-mine"},
        )
        try:
            ready = json.loads(child.stdout.readline())
            assert ready["model"] == MODEL
            url = ready["base_url"].removesuffix("/v1")
            first, second = (
                httpx.post(url + CHAT, json=BODY, timeout=60).json()["usage"]["kvgate"] for _ in range(2)
            )
            child.send_signal(signal.SIGTERM)
            _, errors = child.communicate(timeout=300)
        finally:
            child.kill()
            child.wait()
    assert child.returncode == 0
    assert engine.asked[0].headers["authorization"] == "Bearer sk-of-mine"
    assert "sk-of-mine" not in errors
    assert "A prompt of some" not in errors
    assert (first["predicted"], first["reused"]) == (0, 0)
    assert second["predicted"] > 0
    rows = list(open_reader(str(ledger), {}).rows())
    assert [(row.engine, row.model, row.reused) for row in rows] == [("mine", MODEL, 0)] * 2
    assert rows[1].predicted == second["predicted"]


def test_options_that_belong_into_the_file_are_refused(file: Path) -> None:
    file.write_text("engines:\n  - {name: a, kind: vllm, url: 'http://127.0.0.1:1'}\n")
    shown = run("serve", "--config", str(file), "--model", "x", "--block-size", "32")
    assert shown.returncode == 1
    assert shown.stderr == "Error: --block-size, --model: with --config this stands in the file\n"


def test_check_says_what_is_wrong_key_by_key(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("engines:\n  - {name: a, kind: vllm, ur: x}\nusage: 7\n")
    shown = run("config", "check", str(file))
    assert (shown.returncode, shown.stdout) == (1, "")
    lines = shown.stderr.splitlines()
    assert lines[:2] == [
        "Error: engines[0]: write url, or replicas where there are several",
        "Error: engines[0].ur: there is no such key",
    ]
    assert lines[2].startswith("Error: usage: ")
    assert not check.run(file, {}, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], told["errors"][0]) == (
        False,
        "engines[0]: write url, or replicas where there are several",
    )


def test_check_lists_what_would_be_served(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("engines:\n  - {name: a, kind: vllm, url: 'http://127.0.0.1:1'}\n")
    assert check.run(file, {}, as_json=False)
    assert capsys.readouterr().out == "a: vllm\n"
    assert check.run(file, {}, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told == {"ok": True, "errors": [], "warnings": [], "engines": ["a: vllm"]}


def test_check_tells_what_nothing_reads(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        "engines: [{name: a, kind: vllm, url: 'http://127.0.0.1:1', cache_tokens: 9}]\n"
        "redis: {url: 'redis://127.0.0.1:1'}\ndirectory: {}\nrouting: {policy: %s, recompute_price: 2}\n"
    )
    file.write_text(text % "least_load")
    assert check.run(file, {}, as_json=False)
    assert capsys.readouterr().err.splitlines() == [
        f"Warning: {path}: nothing reads it under routing.policy: least_load"
        for path in ("engines[0].cache_tokens", "directory", "routing.recompute_price")
    ]
    file.write_text(text % "prefix")
    assert check.run(file, {}, as_json=False)
    assert capsys.readouterr().err == ""


def test_check_tells_what_the_environment_asks_for_and_nobody_sends(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    file.write_text("engines:\n  - {name: a, kind: vllm, url: 'http://127.0.0.1:1'}\n")
    asked = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
    warning = (
        "OTEL_* of the environment: nothing is sent: it needs opentelemetry-sdk: pip install 'kvgate[otel]'"
    )
    assert check.run(file, asked, as_json=False)  # a server starts with it all the same
    said = capsys.readouterr()
    assert (said.out, said.err) == ("a: vllm\n", f"Warning: {warning}\n")
    assert check.run(file, asked, as_json=True)
    assert json.loads(capsys.readouterr().out)["warnings"] == [warning]
    for off in ({}, asked | {"OTEL_SDK_DISABLED": "true"}):
        assert check.run(file, off, as_json=False)
        assert capsys.readouterr().err == ""


def test_check_misses_a_key_that_is_not_there(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("engines:\n  - {name: a, kind: openai, url: 'http://127.0.0.1:1', key: {env: MY_KEY}}\n")
    assert not check.run(file, {}, as_json=False)
    assert capsys.readouterr().err == "Error: engines[0].key: the environment has no MY_KEY\n"


def with_tokenizer(keys: str) -> str:
    return f"engines:\n  - {{name: a, kind: vllm, url: 'http://127.0.0.1:1', {keys}}}\n"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("control_tokens_in_content: reject", "engines[0].control_tokens_in_content: reject needs tokenizer"),
        ("tokenizer: /no/such/folder", "engines[0].tokenizer: /no/such/folder/tokenizer.json is missing"),
        ("tokenizer: 7, control_tokens_in_content: reject", "engines[0].tokenizer: "),
    ],
)
def test_check_knows_what_looking_for_control_tokens_needs(
    file: Path, capsys: pytest.CaptureFixture[str], keys: str, message: str
) -> None:
    file.write_text(with_tokenizer(keys))
    assert not check.run(file, {}, as_json=True)
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert error.startswith(message)


@pytest.mark.parametrize(("action", "looks"), [(None, "report"), ("reject", "reject"), ("allow", None)])
def test_a_remote_engine_s_tokenizer_is_looked_with(
    file: Path, tiny_model: Callable[..., Path], action: str | None, looks: str | None
) -> None:
    more = "" if action is None else f", control_tokens_in_content: {action}"
    file.write_text(with_tokenizer(f"tokenizer: '{tiny_model('qwen3')}'{more}"))
    (pool,) = assembled(load_config(file), {}).configured.pools
    (remote,) = pool.replicas
    assert (remote.control_tokens and remote.control_tokens.action) == looks


def test_sglang_runs_in_a_process_of_its_own(file: Path, tiny_model: Callable[..., Path]) -> None:
    model = tiny_model("qwen3")
    file.write_text(
        f"engines:\n  - {{kind: sglang_process, python: '{sys.executable}', model: '{model}', "
        "served_model_name: tiny}\n"
    )
    path = os.pathsep.join([str(STAND_IN), os.environ.get("PYTHONPATH", "")])
    child = subprocess.Popen(
        command("serve", "--config", str(file), "--port", "0", "--json"),
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        ready = json.loads(child.stdout.readline())
        body = {"model": "tiny", "prompt": [5, 6, 7], "max_tokens": 4}
        answer = httpx.post(f"{ready['base_url']}/completions", json=body, timeout=300)
        child.send_signal(signal.SIGTERM)
        status = child.wait(120)
    finally:
        child.kill()
        child.wait()
    assert ready["model"] == "tiny"
    assert answer.status_code == 200
    assert answer.json()["usage"]["prompt_tokens"] == 3
    assert status == 0


def test_check_names_every_secret_that_is_missing(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engines = [
        f"{{name: {n}, kind: openai, url: 'http://127.0.0.1:1', key: {{env: KEY_{n}}}}}" for n in "abc"
    ]
    file.write_text("engines:\n" + "".join(f"  - {engine}\n" for engine in engines))
    assert not check.run(file, {"KEY_b": "x"}, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["errors"] == [
        f"engines[{i}].key: the environment has no KEY_{n}" for i, n in ((0, "a"), (2, "c"))
    ]


def test_check_reads_the_environment(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(ONE_ENGINE)
    assert not check.run(file, {"KVGATE__USAGE": "all"}, as_json=False)
    assert (
        capsys.readouterr().err == "Error: usage: input should be 'standard' or 'full', from KVGATE__USAGE\n"
    )
    assert check.run(
        None, {"KVGATE__ENGINES": "[{name: a, kind: vllm, url: 'http://127.0.0.1:1'}]"}, as_json=False
    )


ONE_ENGINE = "engines:\n  - {name: a, kind: vllm, url: 'http://127.0.0.1:1'}\n"


def test_show_is_a_file_that_says_the_same(file: Path, tmp_path: Path) -> None:
    file.write_text(ONE_ENGINE + "ledger: {keep: 3d}\nlimits: {concurrency: null, tokens_per_minute: 5}\n")
    environ = {"KVGATE__USAGE": "full", "KVGATE__ENGINES__0__MODELS": "{A-b: c}"}
    again = tmp_path / "again.yaml"
    again.write_text(shown(file, environ, as_json=False))
    config = load_config(file, environ)
    assert load_config(again) == config
    assert digest(load_config(again)) == digest(config)
    assert load_config(again).limits.model_fields_set == config.limits.model_fields_set
    assert json.loads(shown(file, environ, as_json=True))["usage"] == "full"
    assert digest(load_config(file)) != digest(config)


def test_show_hides_what_could_be_a_secret(file: Path) -> None:
    arguments = (
        "{api_key: sk-1, tp_size: 2, hf_token: sk-2, more: [{admin_password: sk-3}], max_total_tokens: 9}"
    )
    file.write_text(
        f"engines:\n  - {{kind: sglang_process, python: /p, model: /m, arguments: {arguments}}}\n"
    )
    text = shown(file, {}, as_json=False)
    assert "sk-" not in text
    assert "tp_size: 2" in text
    assert "max_total_tokens: 9" in text


def test_the_schema_knows_every_key_and_no_other() -> None:
    schema = json.loads(schema_text())
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert set(schema["properties"]) == set(Config.model_fields)
    assert schema["additionalProperties"] is False


def test_a_gateway_is_served_from_the_environment_alone(tmp_path: Path) -> None:
    with fake_engine(lambda connection, _: connection.reply(whole(0))) as engine:
        variables = {
            "KVGATE__ENGINES__0__KIND": "openai",
            "KVGATE__ENGINES__0__NAME": "mine",
            "KVGATE__ENGINES__0__URL": engine.url,
            "KVGATE__LEDGER__URL": "off",
            "KVGATE__SERVER__PORT": "1",
        }
        child = subprocess.Popen(
            command("serve", "--port", "0", "--json"),  # the command line counts instead
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables},
        )
        try:
            ready = json.loads(child.stdout.readline())
            answer = httpx.post(ready["base_url"] + "/chat/completions", json=BODY, timeout=60)
            child.send_signal(signal.SIGTERM)
            status = child.wait(120)
        finally:
            child.kill()
            child.wait()
    assert answer.status_code == 200
    assert status == 0


def test_keys_that_nothing_would_read_are_refused() -> None:
    shown = subprocess.run(
        command("serve", "--port", "0"),
        env={**os.environ, "KVGATE__USAGE": "full"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert shown.returncode == 1
    assert shown.stderr.startswith("Error: KVGATE__USAGE: it is read with --config FILE")
