"""The configuration file: what is wrong is named by its key, and secrets are never repeated."""

from pathlib import Path
from textwrap import dedent
from typing import get_args

import pytest

from engine_adapters.embedded.cold_config import ColdCoding, Marks, SharedStore
from gateway.config.assemble import assembled
from gateway.config.build import embedded_options, settings_of
from gateway.config.engines import EmbeddedEngine, EngineConfig
from gateway.config.errors import ConfigError
from gateway.config.load import load_config

ENGINE = "- {name: a, kind: vllm, url: 'http://127.0.0.1:1'}"


def load(folder: Path, text: str):
    file = folder / "kvgate.yaml"
    file.write_text(dedent(text))
    return load_config(file)


def errors(folder: Path, text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as refused:
        load(folder, text)
    return refused.value.messages


def test_all_kinds_are_read(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        """
        engines:
          - {name: here, kind: embedded, model: owner/model, block_size: 32, host_cache_gib: 2}
          - {name: sgl, kind: sglang, url: "http://127.0.0.1:30000", models: [one, two]}
          - {name: v, kind: vllm, url: "http://[::1]:8000/v1"}
          - {name: l, kind: llama_cpp, url: "http://127.0.0.1:8080", models: {short: /a/long.gguf}}
          - name: deep
            kind: openai
            profile: deepseek
            url: https://api.example.com/v1
            models: [chat]
            key: {env: DEEP_KEY}
            first_byte_s: 30
          - {name: claude, kind: anthropic, url: "https://api.example.com/v1", models: [m]}
        canon_policy: ["full,learned_slots:act", chat/one=off]
        canon_rules_version: 1
        usage: full
        max_body_mib: 2
        """,
    )
    assert isinstance(config.local, EmbeddedEngine)
    assert config.local.block_size == 32
    remotes = [pool.replicas[0] for pool in assembled(config, {"DEEP_KEY": " secret\n"}).configured.pools]
    assert [remote.name for remote in remotes] == ["sgl", "v", "l", "deep", "claude"]
    assert dict(remotes[2].models) == {"short": "/a/long.gguf"}
    assert remotes[1].models == {}
    kinds = [type(remote.engine).__name__ for remote in remotes]
    assert kinds == [
        "SGLangEngine",
        "VllmEngine",
        "LlamaCppEngine",
        "OpenAICompatibleEngine",
        "AnthropicEngine",
    ]
    settings = settings_of(config)
    assert (settings.usage, settings.max_body_bytes) == ("full", 2 << 20)
    assert [policy.policy for policy in settings.canon.policies] == ["full", "off"]
    assert settings.canon.policies[0].rules == {"learned_slots": "act"}
    assert settings.canon.rules_version == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"engines:\n  {ENGINE}\nengine: 1", "engine: there is no such key"),
        (
            "engines:\n  - {name: a, kind: vllm, url: 'http://x', ur: 1}",
            "engines[0].ur: there is no such key",
        ),
        ("engines:\n  - {name: a, kind: vllm}", "engines[0]: write url, or replicas"),
        ("engines:\n  - {kind: vllm, url: 'http://x'}", "engines[0].name: field required"),
        (
            "engines:\n  - {name: a, kind: vlm, url: 'http://x'}",
            "engines[0].kind: missing or unknown; there are",
        ),
        ("engines:\n  - {name: a, url: 'http://x'}", "engines[0].kind: missing or unknown; there are"),
        ("engines: []", "engines: list should have at least 1 item"),
        ("usage: full", "engines: field required"),
        (f"engines:\n  {ENGINE}\nusage: all", "usage: input should be 'standard' or 'full'"),
        (f"engines:\n  {ENGINE}\ncanon_policy: [fulll]", "canon_policy: "),
        (
            f"engines:\n  {ENGINE}\ncanon_policy: ['full,slots:act']",
            "canon_policy: no rule is called 'slots'",
        ),
        (f"engines:\n  {ENGINE}\ncanon_rules_version: 99", "canon_rules_version: there are 1"),
        (f"engines:\n  {ENGINE}\n  {ENGINE}", "engines[1].name: 'a' is engines[0].name, too"),
        (
            "engines:\n  - {name: a, kind: vllm, url: 'http://x', models: [m]}\n"
            "  - {name: b, kind: sglang, url: 'http://y', models: {m: z}}",
            "engines[1].models: the model 'm' stands in engines[0].models, too",
        ),
        (
            "engines:\n  - {name: a, kind: vllm, url: 'http://x', models: [m, m]}",
            "engines[0].models: the model 'm' stands in engines[0].models, too",
        ),
        (
            "engines:\n  - {kind: sglang_process, python: /p, model: /models/m}\n"
            "  - {name: b, kind: sglang, url: 'http://y', models: [m]}",
            "engines[1].models: the model 'm' stands in engines[0].model, too",
        ),
        (
            "engines:\n  - {name: a, kind: openai, url: 'http://x', profile: x}",
            "engines[0].profile: there are ",
        ),
        ("engines:\n  - {name: a, kind: vllm, url: 'x:8000'}", "engines[0].url: write http://host:port"),
        ("engines:\n  - {name: a, kind: vllm, url: 'http://u:p@x'}", "engines[0].url: no user or password"),
        (
            "engines:\n  - {name: a, kind: vllm, url: 'http://x', key: {env: A, file: b}}",
            "engines[0].key: write",
        ),
        ("engines:\n  - {name: a, kind: vllm, url: 'http://x', key: {}}", "engines[0].key: write either"),
        (
            "engines:\n  - {name: a, kind: vllm, url: 'http://x', name: b}",
            "line 2, column 44: 'name' stands twice",
        ),
        (
            "engines:\n  - {kind: embedded, store: {folder: /x, secret: {env: A}}}",
            "engines[0]: store needs host_cache_gib",
        ),
        (
            "engines:\n  - {kind: embedded, host_cache_gib: 1, store: {secret: {env: A}}}",
            "engines[0].store: write either folder or mooncake",
        ),
        (
            "engines:\n  - {kind: embedded, disk_cache_dir: /x}",
            "engines[0]: disk_cache_dir needs host_cache_gib",
        ),
        (
            "engines:\n  - {kind: embedded}\n  - {kind: sglang_process, model: /m, python: /p}",
            "engines: only one of them can be embedded or sglang_process",
        ),
        ("engines: [", "line 1, column "),
        ("a: &x 1\nb: *x", "line 2, column 4: references"),
        ("- 1", "the file holds no keys"),
        ("", "the file holds no keys"),
    ],
)
def test_errors_name_the_key(tmp_path: Path, text: str, message: str) -> None:
    assert any(found.startswith(message) for found in errors(tmp_path, text)), errors(tmp_path, text)


def test_an_unknown_kind_is_told_all_that_there_are(tmp_path: Path) -> None:
    (message,) = errors(tmp_path, "engines:\n  - {name: a, kind: vlm, url: 'http://x'}")
    union, _ = get_args(EngineConfig)
    kinds = {kind for member in get_args(union) for kind in get_args(member.model_fields["kind"].annotation)}
    assert all(kind in message for kind in kinds)


def test_all_errors_come_at_once(tmp_path: Path) -> None:
    found = errors(tmp_path, "engines:\n  - {name: '!', kind: vllm, url: x}\nusage: 7")
    assert sorted(message.split(":")[0] for message in found) == [
        "engines[0].name",
        "engines[0].url",
        "usage",
    ]


def test_a_key_is_never_inline_and_never_repeated(tmp_path: Path) -> None:
    found = errors(tmp_path, "engines:\n  - {name: a, kind: vllm, url: 'http://x', key: sk-secret}")
    assert found == ("engines[0].key: a key does not stand in the file: write {env: NAME} or {file: PATH}",)
    found = errors(tmp_path, "engines:\n  - {name: a, kind: vllm, url: 'http://x', key: {sk: sk-secret}}")
    assert "sk-secret" not in str(found)


def with_key(tmp_path: Path, key: str, environ: dict[str, str]):
    config = load(tmp_path, f"engines:\n  - {{name: a, kind: openai, url: 'http://x', key: {key}}}")
    return [pool.replicas[0] for pool in assembled(config, environ).configured.pools]


def test_a_key_comes_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("from-a-file\n")
    (remote,) = with_key(tmp_path, f"{{file: {file}}}", {})
    assert remote.engine._client.headers["authorization"] == "Bearer from-a-file"


@pytest.mark.parametrize(
    ("key", "environ", "message"),
    [
        ("{env: A_KEY}", {}, "engines[0].key: the environment has no A_KEY"),
        ("{env: A_KEY}", {"A_KEY": " "}, "engines[0].key: the environment has no A_KEY"),
        ("{env: A_KEY}", {"A_KEY": "a\nb"}, "engines[0].key: what is there has characters"),
        ("{file: /nowhere/at/all}", {}, "engines[0].key.file: /nowhere/at/all cannot be read"),
    ],
)
def test_a_key_that_is_not_there_is_told(tmp_path: Path, key: str, environ: dict, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        with_key(tmp_path, key, environ)
    assert str(refused.value).startswith(message)


def test_the_anthropic_key_has_a_header_of_its_own(tmp_path: Path) -> None:
    config = load(tmp_path, "engines:\n  - {name: a, kind: anthropic, url: 'http://x', key: {env: K}}")
    (pool,) = assembled(config, {"K": "k"}).configured.pools
    (remote,) = pool.replicas
    headers = remote.engine._client.headers
    assert (headers["x-api-key"], "authorization" in headers) == ("k", False)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_config(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("ledger", "message"),
    [
        ("{url: 'mysql://x/y'}", "ledger.url: the ledger cannot be kept in 'mysql'"),
        ("{url: 'postgresql://u:pw@h/d'}", "ledger.url: no password stands in the file"),
        ("{keep: forever}", "ledger.keep: 'forever' is no span of time"),
    ],
)
def test_a_ledger_that_cannot_be_is_named(tmp_path: Path, ledger: str, message: str) -> None:
    (found,) = errors(tmp_path, f"engines:\n  {ENGINE}\nledger: {ledger}")
    assert found.startswith(message)
    assert "pw" not in found


def test_the_embedded_engine_gets_its_keys(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        """
        engines:
          - kind: embedded
            model: owner/model
            served_model_name: short
            kv_cache_gib: 0.5
            host_cache_gib: 2
            disk_cache_dir: /kv
            block_size: 32
            cold: {compression: 3, quantize: int8, quantize_error: 0.02, secret: {env: COLD}}
            store: {folder: /mnt/kv, gib: 2, mounted: true, secret: {env: STORE}}
            write_policy: write_back
            cold_write_mib_s: 200
            watermarks: {host: {start: 0.9}, disk: {start: 0.95, stop: 0.9}}
            scope_share: 0.4
            threads: 3
            control_tokens_in_content: allow
        """,
    )
    assert isinstance(config.local, EmbeddedEngine)
    options = embedded_options(config.local, "engines[0]", {"COLD": "c" * 16, "STORE": "s" * 20})
    engine = options.engine
    assert (engine.model, engine.served_name, engine.block_size, engine.threads) == (
        "owner/model",
        "short",
        32,
        3,
    )
    assert (engine.kv_bytes, engine.host_cache_bytes) == (1 << 29, 2 << 30)
    assert (engine.disk_cache_dir, engine.disk_cache_bytes) == (Path("/kv"), 8 << 30)
    assert engine.scope_share == 0.4
    assert engine.cold_write_rate == 200 << 20
    assert engine.coding == ColdCoding(3, "int8", 0.02, b"c" * 16)
    assert engine.store == SharedStore(b"s" * 20, Path("/mnt/kv"), 2 << 30, mounted=True)
    assert engine.write_policy == "write_back"
    assert engine.watermarks == {"host": Marks(0.9, 0.7), "disk": Marks(0.95, 0.9)}
    assert (options.name, options.control_tokens_in_content) == ("embedded", "allow")


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (
            "watermarks: {disk: {start: 0.5}}, disk_cache_dir: /kv",
            "watermarks.disk: stop (0.7) is above start (0.5)",
        ),
        ("watermarks: {host: {start: 1.5}}", "watermarks.host.start"),
        (
            "watermarks: {disk: {start: 0.9}}",
            "watermarks.disk would count for nothing: there is no disk cache",
        ),
        ("store: {mooncake: 'a:1', mounted: true, secret: {env: S}}", "mounted says something of a folder"),
        (
            "watermarks: {store: {start: 0.9}}",
            "watermarks.store would count for nothing: there is no shared store",
        ),
        ("watermarks: {cpu: {start: 0.9}}", "watermarks.cpu"),
        ("watermarks: {device: {start: 0.9}}, host_cache_gib: 0", "without a host cache no tier is swept"),
        (
            "watermarks: {store: {start: 0.9}}, store: {mooncake: 'a:1', secret: {env: S}}",
            "made by its master",
        ),
    ],
)
def test_what_is_said_of_tiers_and_cannot_be_or_says_nothing_is_named(
    tmp_path: Path, written: str, message: str
) -> None:
    host = "" if "host_cache_gib" in written else ", host_cache_gib: 1"
    (found,) = errors(tmp_path, f"engines:\n  - {{kind: embedded, {written}{host}}}")
    assert message in found


@pytest.mark.parametrize(
    ("capture", "message"),
    [
        ("{}", "capture.folder"),
        ("{folder: /x, share: 2}", "capture.share"),
        ("{folder: /x, redact: ['a..b']}", "no path"),
        ("{folder: /x, redact_patterns: ['(']}", "no regular expression"),
    ],
)
def test_a_capture_that_cannot_be_is_named(tmp_path: Path, capture: str, message: str) -> None:
    (found,) = errors(tmp_path, f"engines:\n  {ENGINE}\ncapture: {capture}")
    assert message in found


def test_a_collectors_address_is_an_http_url(tmp_path: Path) -> None:
    text = f"engines:\n  {ENGINE}\notlp_endpoint: "
    assert load(tmp_path, f"{text}http://collector:4318").otlp_endpoint == "http://collector:4318"
    assert load(tmp_path, f"engines:\n  {ENGINE}\n").otlp_endpoint is None
    (message,) = errors(tmp_path, f"{text}collector:4317")
    assert "otlp_endpoint" in message


def test_off_is_a_word_and_true_is_not(tmp_path: Path) -> None:
    engine = "{name: a, kind: embedded, trust_remote_code: true}"
    config = load(tmp_path, f"engines:\n  - {engine}\ncanon_policy: [off]\nledger: {{url: off}}\n")
    assert load(tmp_path, "engines:\n  - {kind: embedded, model: trueish}").engines[0].model == "trueish"
    assert (config.canon_policy, config.ledger.url) == (["off"], "off")
    assert isinstance(config.local, EmbeddedEngine)
    assert config.local.trust_remote_code is True
    (found,) = errors(tmp_path, "engines:\n  - {kind: embedded, trust_remote_code: [yes]}")
    assert found.startswith("engines[0].trust_remote_code: ")


def test_one_policy_needs_no_list(tmp_path: Path) -> None:
    given = f"engines:\n  {ENGINE}\ncanon_policy: "
    assert load(tmp_path, given + "full").canon_policy == load(tmp_path, given + "[full]").canon_policy
    assert errors(tmp_path, given + "fulll")[0].startswith("canon_policy: no policy is called 'fulll'")


def test_words_where_a_number_belongs_are_said_plainly(tmp_path: Path) -> None:
    text = f"engines:\n  {ENGINE}\nmax_body_mib: soon"
    assert errors(tmp_path, text) == ("max_body_mib: input should be a valid number",)
