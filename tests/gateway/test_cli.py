"""The `kvgate` command refuses in words and with an exit code."""

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer import Exit
from typer.testing import CliRunner

from engine_adapters.embedded.cold_config import Marks
from engine_adapters.embedded.config import EmbeddedConfig
from gateway.cli import app
from gateway.commands.serve import embedded
from gateway.local.embedded import set_thread_waits
from gateway.process.listener import ListenError, is_loopback, listen, url_of
from tests.requirements import require


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from gateway.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_help_lists_the_commands() -> None:
    shown = CliRunner().invoke(app, ["--help"])
    assert shown.exit_code == 0
    assert "serve" in shown.output
    assert "bench" in shown.output


def test_the_command_starts_without_the_heavy_packages() -> None:
    code = "import gateway.cli, sys; print([m for m in ('torch', 'transformers', 'fastapi') if m in sys.modules])"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    assert shown.stdout.strip() == "[]"


def test_the_gateway_itself_needs_no_torch() -> None:
    code = "import gateway.process.service, gateway.local.embedded, sys; print('torch' in sys.modules)"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    assert shown.stdout.strip() == "False"


def test_version_is_one_line() -> None:
    shown = run("--version")
    assert shown.returncode == 0
    assert len(shown.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "--port", "70000"],
        ["serve", "--port", "x"],
        ["serve", "--no-such"],
        ["nothing"],
        ["serve", "--device", "x"],
        ["serve", "--dtype", "x"],
        ["serve", "--kv-cache-gib", "inf"],
        ["serve", "--host-cache-gib", "inf"],
        ["serve", "--host-cache-gib", "nan"],
        ["serve", "--disk-cache-gib", "inf"],
        ["serve", "--max-body-mib", "inf"],
        ["serve", "--cold-compression", "20"],
        ["serve", "--cold-quantize", "int4"],
        ["serve", "--cold-quantize-error", "0.6"],
    ],
    ids=[
        "port too high",
        "port is a word",
        "unknown option",
        "unknown command",
        "unknown device",
        "unknown dtype",
        "endless kv cache",
        "endless host cache",
        "host cache of no number",
        "endless disk cache",
        "endless bodies",
        "unknown level",
        "unknown form",
        "bound that is none",
    ],
)
def test_bad_options_exit_with_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


@pytest.mark.parametrize("policy", ["best", "chat=best", "embeddings=full", "chat/=full"])
def test_a_canon_policy_that_does_not_exist_is_one_error_and_exit_1(policy: str) -> None:
    shown = CliRunner().invoke(
        app, ["serve", "--port", "0", "--canon-policy", "safe", "--canon-policy", policy]
    )
    assert shown.exit_code == 1
    assert shown.stderr.startswith("Error: --canon-policy: no") or "names no model" in shown.stderr


def test_a_taken_port_is_one_line_and_exit_1() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        shown = run("serve", "--port", str(taken.getsockname()[1]))
    assert shown.returncode == 1
    assert shown.stdout == ""
    assert "in use" in shown.stderr
    assert "Traceback" not in shown.stderr


def test_a_model_that_is_not_there_is_one_error_and_exit_1(tmp_path: Path) -> None:
    require("torch", "pip install 'kvgate[embedded]'")
    shown = run("serve", "--port", "0", "--model", str(tmp_path / "none"))
    assert shown.returncode == 1
    assert shown.stdout == ""
    assert "Error:" in shown.stderr
    assert "Traceback" not in shown.stderr


def test_missing_packages_of_the_embedded_engine_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.local.embedded.missing_packages", lambda: ["torch"])
    shown = CliRunner().invoke(app, ["serve", "--port", "0"])
    assert shown.exit_code == 1
    assert "pip install 'kvgate[embedded]'" in shown.output + shown.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--store-dir", "shared"], "--host-cache-gib"),
        (["--store-dir", "shared", "--host-cache-gib", "1"], "KVGATE_STORE_SECRET"),
        (["--store-dir", "shared", "--store-mooncake", "m:1", "--host-cache-gib", "1"], "choose one"),
        (["--cold-secret-file", "nowhere", "--host-cache-gib", "1"], "cannot be read"),
    ],
    ids=["store without main memory", "store without a secret", "two stores", "secret that is not there"],
)
def test_tiers_that_cannot_work_are_one_error_and_exit_1(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    monkeypatch.setattr("gateway.local.embedded.missing_packages", list)
    shown = CliRunner(env={"KVGATE_STORE_SECRET": "", "KVGATE_COLD_SECRET": ""}).invoke(
        app, ["serve", *arguments]
    )
    assert shown.exit_code == 1
    assert says in shown.output + shown.stderr


def test_a_gpu_that_is_not_there_is_one_error_and_exit_1() -> None:
    if pytest.importorskip("torch").cuda.is_available():
        pytest.skip("there is a GPU here")
    shown = run("serve", "--port", "0", "--device", "cuda")
    assert shown.returncode == 1
    assert "cuda cannot be used" in shown.stderr
    assert "Traceback" not in shown.stderr


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"GOMP_SPINCOUNT": "1000"}),
        ({"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),
        ({"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"}),
    ],
    ids=["chosen", "the count is the operator's", "the policy is the operator's"],
)
def test_threads_spin_shortly_unless_the_operator_says_more(
    before: dict[str, str], after: dict[str, str]
) -> None:
    set_thread_waits(before)
    assert before == after


@pytest.mark.parametrize(("host", "local"), [("127.0.0.1", True), ("localhost", True), ("0.0.0.0", False)])
def test_a_listener_knows_whether_it_is_local(host: str, local: bool) -> None:
    with listen(host, 0) as listener:
        assert is_loopback(listener) is local
        assert url_of(listener).startswith("http://")


def test_ipv6_urls_have_brackets() -> None:
    try:
        listener = listen("::1", 0)
    except ListenError:
        pytest.skip("this machine has no IPv6 loopback")
    with listener:
        assert url_of(listener).startswith("http://[::1]:")


@pytest.mark.parametrize(
    ("host", "said"), [("no such host", "not known"), ("192.0.2.1", "not an address of this machine")]
)
def test_an_impossible_host_is_said_in_words(host: str, said: str) -> None:
    with pytest.raises(ListenError, match=said):
        listen(host, 0)


def test_options_about_the_caches_reach_the_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: list[Any] = []
    monkeypatch.setattr(embedded, "serve", lambda *arguments: given.extend(arguments) or 0)
    options = ["--scope-share", "0.4", "--write-policy", "write_back", "--host-cache-gib", "2"]
    options += ["--cold-write-mib-s", "1.5", "--watermark", "disk=0.95:0.9", "--watermark", "device=0.8:0.8"]
    shown = CliRunner().invoke(app, ["serve", *options, "--disk-cache-dir", str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    config = embedded._engine(given[1], given[2], {})
    assert (config.scope_share, config.write_policy) == (0.4, "write_back")
    assert (config.host_cache_bytes, config.disk_cache_dir) == (2 << 30, tmp_path)
    assert config.cold_write_rate == 1.5 * (1 << 20)
    assert config.watermarks == {"disk": Marks(0.95, 0.9), "device": Marks(0.8, 0.8)}
    given.clear()
    assert CliRunner().invoke(app, ["serve"]).exit_code == 0
    assert embedded._engine(given[1], given[2], {}) == EmbeddedConfig(
        block_size=16, cache_dir=embedded._engine(given[1], given[2], {}).cache_dir
    )


@pytest.mark.parametrize(
    ("watermark", "said"),
    [
        ("cpu=0.9:0.8", "a tier is one of"),
        ("host=0.9", "no TIER=START:STOP"),
        ("host=0.7:0.9", "stop is no higher than start"),
        ("disk=0.9:0.8", "there is no disk cache"),
    ],
)
def test_a_watermark_that_cannot_be_is_said_in_words(
    watermark: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(embedded, "serve", lambda *arguments: given.extend(arguments) or 0)
    assert (
        CliRunner().invoke(app, ["serve", "--host-cache-gib", "1", "--watermark", watermark]).exit_code == 0
    )
    with pytest.raises(Exit):
        embedded._engine(given[1], given[2], {})
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("share", ["-0.1", "1.1", "nan"])
def test_a_share_is_between_0_and_1(share: str) -> None:
    assert CliRunner().invoke(app, ["serve", "--scope-share", share]).exit_code == 2
