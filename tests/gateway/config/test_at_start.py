"""`kvgate config check` says what a start would: strangers, folders, programs and packages."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import gateway.config.build as build
from gateway.commands.config.check import checks
from gateway.config.errors import ConfigError
from gateway.config.load import load_config
from gateway.tenants.keys import hash_of

FAR = "engines: [{name: a, kind: vllm, url: 'http://127.0.0.1:1'}]\n"
DOCS = Path(__file__).parents[3] / "docs"
KEYS = dict.fromkeys(("FLEET_KEY", "KVGATE_ADMIN_KEY", "KVGATE_SALT_SECRET", "REDIS_PASSWORD"), "k" * 32)


def said(folder: Path, text: str, environ: dict[str, str] | None = None) -> list[str]:
    file = folder / "kvgate.yaml"
    file.write_text(text)
    found = []
    for look in checks(load_config(file, environ or {}), environ or {}):
        try:
            look()
        except ConfigError as error:
            found += error.messages
    return found


def local(kind: str, **keys: object) -> str:
    return f"engines: [{{kind: {kind}, {', '.join(f'{key}: {value!r}' for key, value in keys.items())}}}]\n"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
def test_strangers_are_kept_out_before_the_start(tmp_path: Path, host: str) -> None:
    (message,) = said(tmp_path, f"{FAR}server: {{host: '{host}'}}\n")
    assert message.startswith(f"server.host: {host} is reached from beyond this machine")


@pytest.mark.parametrize(
    "more",
    [
        "server: {host: 127.0.0.1}",
        "server: {host: '::1'}",
        "server: {host: localhost}",
        "server: {host: 0.0.0.0, allow_no_keys: true}",
        f"server: {{host: 0.0.0.0}}\ntenants: [{{name: t, keys: ['{hash_of('a key')}']}}]",
    ],
)
def test_where_nobody_else_gets_in_there_is_nothing_to_say(tmp_path: Path, more: str) -> None:
    assert said(tmp_path, FAR + more) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (local("embedded", model="/no/such"), "engines[0].model: there is no folder '/no/such'"),
        (local("embedded", model=sys.executable), "engines[0].model: "),
        (
            local("embedded", chat_template="/no/such.jinja"),
            "engines[0].chat_template: /no/such.jinja is no file",
        ),
        (
            local("sglang_process", python="/no/python", model="/no"),
            "engines[0].python: /no/python is no program",
        ),
        (
            local("sglang_process", python=sys.executable, model="/no"),
            "engines[0].model: /no/tokenizer.json is",
        ),
    ],
)
def test_what_is_not_on_this_machine_is_named(tmp_path: Path, text: str, message: str) -> None:
    assert said(tmp_path, text)[0].startswith(message)


def test_an_engine_that_is_all_there_passes(tmp_path: Path, tiny_model: Callable[..., Path]) -> None:
    model = str(tiny_model("qwen3"))
    template = tmp_path / "chat.jinja"
    template.write_text("{{ messages }}")
    assert said(tmp_path, local("embedded", model=model, chat_template=str(template))) == []
    assert said(tmp_path, local("embedded", model="owner/at-the-hub")) == []
    assert said(tmp_path, local("sglang_process", python=sys.executable, model=model)) == []


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "missing_packages", lambda: ["torch"])
    (message,) = said(tmp_path, "engines: [{kind: embedded}]\n")
    assert message == "engines[0]: it needs torch: pip install 'kvgate[embedded]'"


def test_a_ledger_whose_driver_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    (message,) = said(tmp_path, f"{FAR}ledger: {{url: 'postgresql://u@127.0.0.1:1/x'}}\n")
    assert message == "ledger.url: it needs psycopg: pip install 'kvgate[postgres]'"


def test_what_sends_traces_is_looked_for_where_something_is_to_be_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    file = f"{FAR}otlp_endpoint: 'http://127.0.0.1:4318'\n"
    assert said(tmp_path, file) == ["otlp_endpoint: it needs opentelemetry-sdk: pip install 'kvgate[otel]'"]
    assert said(tmp_path, file, {"OTEL_SDK_DISABLED": "true"}) == []


def test_nothing_is_written_for_a_check(tmp_path: Path) -> None:
    ledger = tmp_path / "folder" / "rows.db"
    assert said(tmp_path, f"{FAR}ledger: {{url: '{ledger}'}}\n") == []
    assert not ledger.parent.exists()


# What is on the reader's machine and not on this one.
ELSEWHERE = ("/models/", "/etc/kvgate/", "KUBERNETES_SERVICE_HOST", "DEEPSEEK_KEY", "/run/secrets/")


@pytest.mark.parametrize("page", ["operation", "tenants", "limits", "replicas", "routing", "engines"])
def test_the_first_example_of_a_page_can_be_served_as_it_is_written(tmp_path: Path, page: str) -> None:
    text = re.findall(r"```yaml\n(.*?)```", (DOCS / f"{page}.md").read_text("utf-8"), re.DOTALL)[0]
    if not re.search(r"^engines:", text, re.MULTILINE):
        text = FAR + text
    found = said(tmp_path, text, KEYS)
    assert [message for message in found if not any(where in message for where in ELSEWHERE)] == []
