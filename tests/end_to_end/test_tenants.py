"""Tenants over the real engine in a real process: nothing of one is reused by another, and one can be forgotten."""

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
from gateway.tenants.keys import hash_of
from tests.end_to_end.running import ADMIN, ADMINS, KEYS, MODEL, SALT, TENANTS, Process, embedded
from tests.waiting import PATIENCE_S, wait_until

HTTP = httpx.Client(timeout=PATIENCE_S)


class Gateway(Process):
    """One serving process."""

    def __init__(self, file: Path, ledger: Path) -> None:
        self.ledger = ledger
        super().__init__(file)

    def ask(self, tenant: str, text: str, **more: Any) -> int:
        """Tokens that were reused."""
        sdk = openai.OpenAI(base_url=self.url, api_key=KEYS[tenant], max_retries=0, timeout=120)
        answer = sdk.completions.create(model=MODEL, prompt=text, max_tokens=1, **more)
        return answer.usage.prompt_tokens_details.cached_tokens

    def purge(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "gateway", "purge", "--url", self.admin, "--json", *arguments]
        environ = {**os.environ, "KVGATE_ADMIN_KEY": ADMIN}
        return subprocess.run(command, capture_output=True, text=True, env=environ, timeout=300, check=False)

    def rows(self, tenant: str) -> int:
        return sum(row.tenant == tenant for row in open_reader(str(self.ledger), {}).rows())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tenants")


@pytest.fixture(scope="module")
def gateway(tiny_model: Callable[[str], Path], folder: Path) -> Iterator[Gateway]:
    config = {
        "engines": [embedded(tiny_model("llama"), folder)],
        "ledger": {"url": str(folder / "rows.db")},
        "capture": {"folder": str(folder / "bodies"), "share": 1},
        "tenants": TENANTS,
        "salt_secret": {"env": "SALT"},
        "admin": ADMINS,
    }
    file = folder / "kvgate.yaml"
    file.write_text(json.dumps(config))
    it = Gateway(file, folder / "rows.db")
    yield it
    it.end()


def prompt(about: str) -> str:
    return f"{about}: " + "the sea is wide and the ships on it are many. " * 6


def captured(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for file in (folder / "bodies").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]


def said(folder: Path, text: str = "", tenant: str = "") -> int:
    """Bodies that were kept with that in them."""
    return sum(text in str(line["request"]) and tenant in line["tenant"] for line in captured(folder))


def test_a_tenant_s_prefix_is_reused_by_its_group_alone(gateway: Gateway) -> None:
    text = prompt("warmed by blue")
    assert gateway.ask("blue", text) == 0
    warm = gateway.ask("blue", text)
    assert warm > 50
    assert gateway.ask("red", text) == 0
    assert gateway.ask("navy", text) == warm
    assert gateway.ask("red", text) == warm  # its own, by now


def test_a_salt_of_the_client_s_own_brings_it_nowhere_else(gateway: Gateway) -> None:
    for name in ("cache_salt", "extra_key"):
        for stolen in ("sea", "sea/tiny", "blue"):
            text = prompt(f"{stolen} {name}")
            gateway.ask("blue", text)
            assert gateway.ask("red", text, extra_body={name: stolen}) == 0


def test_a_tenant_is_forgotten_everywhere_and_the_others_are_not(gateway: Gateway, folder: Path) -> None:
    mine, theirs = prompt("red keeps this"), prompt("blue keeps that")
    gateway.ask("red", mine)
    gateway.ask("blue", theirs)
    assert gateway.ask("red", mine) > 50
    wait_until(lambda: said(folder, "red keeps this") == 2 and said(folder, "blue keeps that"), "bodies")
    for tenant in ("red", "blue"):
        wait_until(lambda tenant=tenant: gateway.rows(tenant) == said(folder, tenant=tenant), "rows")
    others = gateway.rows("blue")
    done = gateway.purge("--tenant", "red")
    assert done.stdout, done.stderr + "\n".join(gateway.lines)
    told = json.loads(done.stdout)
    kept = {name: each["detail"] for name, each in told["places"].items() if not each["complete"]}
    assert (done.returncode, kept) == (0, {})
    places = told["places"]
    assert places["kv"]["count"] > 3
    assert min(places[name]["count"] for name in ("ledger", "bodies")) > 1
    assert gateway.rows("red") == 0
    assert gateway.rows("blue") >= others
    assert not [line for line in captured(folder) if line["tenant"] == "red"]
    assert [line for line in captured(folder) if line["tenant"] == "blue"]
    assert not any(b"red keeps this" in file.read_bytes() for file in folder.rglob("*") if file.is_file())
    assert gateway.ask("red", mine) == 0
    assert gateway.ask("blue", theirs) > 50


def test_what_a_group_shares_stays_until_the_group_is_named(gateway: Gateway) -> None:
    text = prompt("of the sea")
    gateway.ask("blue", text)
    done = gateway.purge("--tenant", "blue")
    told = json.loads(done.stdout)
    assert (done.returncode, told["complete"], told["shared_with"]) == (1, False, ["navy"])
    assert "navy share it" in told["places"]["kv"]["detail"]
    assert gateway.ask("navy", text) > 50
    assert json.loads(gateway.purge("--tenant", "blue", "--group").stdout)["complete"]
    assert gateway.ask("navy", text) == 0


def test_the_admin_app_has_a_port_and_a_key_of_its_own(gateway: Gateway) -> None:
    main = gateway.url.removesuffix("/v1")
    admin = {"authorization": f"Bearer {ADMIN}"}
    for path in ("/metrics", "/admin/engines", "/admin/tenants"):
        assert HTTP.get(gateway.admin + path).status_code == 401
        assert HTTP.get(gateway.admin + path, headers={"x-api-key": KEYS["red"]}).status_code == 401
        assert HTTP.get(gateway.admin + path, headers=admin).status_code == 200
        assert HTTP.get(main + path, headers=admin).status_code == 404
    assert HTTP.post(gateway.admin + "/admin/purge", json={"tenant": "red"}).status_code == 401
    assert HTTP.post(f"{main}/admin/purge", json={"tenant": "red"}, headers=admin).status_code == 404
    assert HTTP.get(gateway.url + "/models", headers=admin).status_code == 401


def test_nothing_that_opens_or_reads_is_shown(gateway: Gateway) -> None:
    told = HTTP.get(f"{gateway.admin}/admin/tenants", headers={"x-api-key": ADMIN}).text
    assert {each["name"] for each in json.loads(told)["tenants"]} == {"red", "blue", "navy"}
    shown = [told, *gateway.lines]
    for secret in (SALT, ADMIN, *KEYS.values(), *(hash_of(key)[7:] for key in KEYS.values())):
        assert not any(secret in text for text in shown)
    assert not any("the sea is wide" in line for line in gateway.lines)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400), (b"[]", 400), (b'{"tenant": "nobody"}', 404), (b"{}", 404), (b'{"tenant": ["red"]}', 404),
        (b'{"tenant": "red", "x": 1}', 400), (b" " * 5000, 413),
    ],
)  # fmt: skip
def test_an_admin_s_slip_forgets_nothing(gateway: Gateway, body: bytes, status: int) -> None:
    text = prompt("still here")
    gateway.ask("red", text)
    answer = HTTP.post(f"{gateway.admin}/admin/purge", content=body, headers={"x-api-key": ADMIN})
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert gateway.ask("red", text) > 50


def test_who_cannot_be_asked_is_said(gateway: Gateway) -> None:
    assert gateway.purge("--tenant", "nobody").returncode == 2
    command = [sys.executable, "-m", "gateway", "purge", "--tenant", "red", "--url", "http://127.0.0.1:1"]
    away = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "KVGATE_ADMIN_KEY": "x"}, check=False
    )
    assert away.returncode == 2
    assert "does not answer" in away.stderr


def test_the_doctor_examines_the_gateway_with_a_tenants_key_and_not_without_one(
    gateway: Gateway, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text(KEYS["red"])
    line = [sys.executable, "-m", "gateway", "doctor", gateway.url, "--words", "64", "--json"]
    refused = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
    assert refused.returncode == 2
    assert "--key-file" in refused.stderr
    found = subprocess.run(
        [*line, "--key-file", str(file)], capture_output=True, text=True, timeout=300, check=False
    )
    said = {check["name"]: check["finding"] for check in json.loads(found.stdout)["checks"]}
    assert {said[rule] for rule in ("reports", "fresh", "repeat", "bounds", "stream")} == {"yes"}, (
        found.stdout
    )
    assert KEYS["red"] not in found.stdout + found.stderr
