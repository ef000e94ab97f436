"""What the ledger and its reports say of two tenants' requests over two replicas, through a real gateway process."""

import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.ledger import LedgerRow
from gateway.ledger.opening import open_reader
from gateway.tenants.keys import hash_of
from tests.end_to_end.test_tenants import KEYS, Gateway
from tests.gateway.relay.fake_engine import MODEL, fake_engine
from tests.gateway.routing.test_wiring import Cache
from tests.waiting import wait_until

SYSTEM = "Current time: 2026-11-30 12:00:{:02}\n" + "You know all there is to know of tides and winds. " * 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


@pytest.fixture(scope="module")
def gateway(folder: Path) -> Iterator[Gateway]:
    with ExitStack() as stack:
        urls = [stack.enter_context(fake_engine(Cache())).url for _ in "ab"]
        replicas = [{"name": name, "url": url} for name, url in zip("ab", urls, strict=True)]
        config = {
            "engines": [
                {
                    "name": "fleet",
                    "kind": "openai",
                    "replicas": replicas,
                    "models": [MODEL],
                    "shared_cache": True,  # of the two tenants
                }
            ],
            "ledger": {"url": str(folder / "rows.db")},
            "routing": {"policy": "round_robin"},
            "canon_policy": ["full"],
            "tenants": [{"name": name, "keys": [hash_of(KEYS[name])]} for name in ("red", "blue")],
            "salt_secret": {"env": "SALT"},
        }
        file = folder / "kvgate.yaml"
        file.write_text(json.dumps(config))
        it = Gateway(file, folder / "rows.db")
        stack.callback(it.process.wait, 60)
        stack.callback(it.process.terminate)
        yield it


def ask(gateway: Gateway, tenant: str, question: str, second: int, **headers: str) -> None:
    messages = [
        {"role": "system", "content": SYSTEM.format(second)},
        {"role": "user", "content": question},
    ]
    answer = httpx.post(
        f"{gateway.url}/chat/completions",
        json={"model": MODEL, "messages": messages},
        headers={"authorization": f"Bearer {KEYS[tenant]}", **headers},
        timeout=300,
    )
    assert answer.status_code == 200, answer.text


@pytest.fixture(scope="module")
def rows(gateway: Gateway) -> list[LedgerRow]:
    for number in range(4):
        ask(gateway, "red", f"When is high water in port {number}?", number)
    for number in range(4):
        more = {"x-stainless-retry-count": "2"} if number == 3 else {}
        ask(gateway, "blue", f"Where from does wind {number} come?", number, **more)
    wait_until(lambda: len(read(gateway)) == 8, "rows are written within a second")
    return read(gateway)


def read(gateway: Gateway) -> list[LedgerRow]:
    return list(open_reader(str(gateway.ledger), {}).rows())


def command(gateway: Gateway, *arguments: str) -> str:
    line = [sys.executable, "-m", "gateway", *arguments, "--ledger", str(gateway.ledger)]
    return subprocess.run(line, capture_output=True, text=True, timeout=300, check=False).stdout


def test_each_row_says_whose_it_is_and_which_replica_answered(rows: list[LedgerRow]) -> None:
    assert [row.tenant for row in rows] == ["red"] * 4 + ["blue"] * 4
    assert {(row.engine, row.model, row.route) for row in rows} == {("fleet", MODEL, "chat")}
    assert {row.replica for row in rows[:4]} == {row.replica for row in rows[4:]} == {"fleet/a", "fleet/b"}
    assert len({row.id for row in rows}) == 8


def test_each_row_has_its_times_tokens_and_how_it_ended(rows: list[LedgerRow]) -> None:
    for row in rows:
        assert row.end is not None
        assert row.arrival <= row.end
        assert (row.status, row.finish, row.error, row.attempts, row.stream) == (200, "stop", None, 1, False)
        assert row.prompt is not None
        assert row.reused is not None
        assert row.recomputed == row.prompt - row.reused
        assert row.completion == 1
        assert (row.reuse_status, row.reuse_source) == (
            "reported",
            "usage.prompt_tokens_details.cached_tokens",
        )
    assert [row.retries for row in rows] == [0] * 7 + [2]


def test_what_was_predicted_is_told_and_what_canon_did_for_it(rows: list[LedgerRow]) -> None:
    warm = [rows[2], rows[3], rows[6], rows[7]]
    assert all(row.predicted and row.reused for row in warm)
    for row in rows:
        assert (row.canon_policy, row.canon_edits > 0) == ("full", True)  # the clock went to the tail note
    assert all(row.canon_saved for row in warm)
    assert all(row.divergence is not None and row.divergence.path for row in warm)


def test_audit_tells_replicas_and_tenants_apart(gateway: Gateway, rows: list[LedgerRow]) -> None:
    report: dict[str, Any] = json.loads(command(gateway, "audit", "--by", "replica,tenant", "--json"))
    groups = {(group["key"]["replica"], group["key"]["tenant"]): group for group in report["groups"]}
    assert set(groups) == {
        (replica, tenant) for replica in ("fleet/a", "fleet/b") for tenant in ("red", "blue")
    }
    for (replica, tenant), group in groups.items():
        its = [row for row in rows if (row.replica, row.tenant) == (replica, tenant)]
        assert group["reused"] == sum(row.reused or 0 for row in its)
        assert group["requests"] == len(its) == 2


def test_the_export_has_every_row(gateway: Gateway, rows: list[LedgerRow]) -> None:
    exported = list(csv.DictReader(io.StringIO(command(gateway, "ledger", "export", "--format", "csv"))))
    assert [(each["tenant"], each["replica"], int(each["reused"])) for each in exported] == [
        (row.tenant, row.replica, row.reused) for row in rows
    ]
