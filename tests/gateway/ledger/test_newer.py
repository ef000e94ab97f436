"""A newer kvgate has changed the ledger under an older one: every path says what to do, and traffic goes on."""

import logging
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from gateway.ledger import (
    Database,
    LedgerSchemaError,
    LedgerWriter,
    WriterSettings,
    open_database,
    open_writer,
)
from gateway.ledger.schema import VERSION
from tests.end_to_end.running import ADMIN, ADMINS, KEYS, TENANTS, Process, serving
from tests.gateway.ledger.rows import row
from tests.gateway.relay.fake_engine import MODEL, fake_engine, whole
from tests.waiting import PATIENCE_S, wait_until

_FAST = WriterSettings(interval_s=0.01, first_retry_s=0.01, last_retry_s=0.05)
_SAID = (
    f"a newer kvgate has changed the ledger's schema (99; this one knows {VERSION}): run that newer version"
)


def changed(path: Path) -> None:
    """As a newer kvgate leaves it."""
    database = Database(open_database(str(path), {}).url)
    with database.engine.begin() as connection:
        connection.execute(text("UPDATE ledger_schema SET version = 99"))
        connection.execute(text("ALTER TABLE requests ADD COLUMN newer TEXT"))
    database.close()


def begun(path: Path) -> None:
    writer = open_writer(str(path), {})
    assert writer is not None
    writer.put(row(1))
    writer.close()


@pytest.mark.parametrize(
    "command", [["audit"], ["ledger", "prune", "--older-than", "1d"], ["ledger", "export"]]
)
def test_commands_say_what_to_do(tmp_path: Path, command: list[str]) -> None:
    path = tmp_path / "ledger.db"
    begun(path)
    changed(path)
    arguments = [sys.executable, "-m", "gateway", *command, "--ledger", str(path)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 2
    assert _SAID in done.stderr
    assert "Traceback" not in done.stderr


def test_a_gateway_that_starts_over_it_serves_and_says_that_rows_are_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "ledger.db"
    begun(path)
    changed(path)
    with caplog.at_level(logging.ERROR), pytest.raises(LedgerSchemaError):
        open_database(str(path), {})
    writer = open_writer(str(path), {}, settings=_FAST)
    assert writer is not None
    writer.put(row(2))
    wait_until(lambda: writer.counts().retries > 1, "it is tried again")
    assert writer.counts().failing == "LedgerSchemaError"
    assert writer.close(0.1) == 1
    told = [record for record in caplog.records if record.message.startswith("THE LEDGER TAKES NO ROWS")]
    assert _SAID in told[0].fields["reason"]


def test_one_that_runs_goes_on_and_its_purge_says_what_to_do(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    with fake_engine(lambda connection, _: connection.reply(whole(4))) as engine:
        config = {
            "engines": [
                {"name": "e", "url": engine.url, "kind": "openai", "models": [MODEL], "shared_cache": True}
            ],
            "tenants": TENANTS,
            "salt_secret": {"env": "SALT"},
            "ledger": {"url": str(ledger)},
            "admin": ADMINS,
        }
        with serving(tmp_path / "kvgate.yaml", config) as gateway:
            wait_until(lambda: ask(gateway) == 200, "the engine was asked")
            before = rows(ledger, 1)
            changed(ledger)
            assert ask(gateway) == 200
            rows(ledger, before + 1)
            (line,) = [line for line in purged(gateway) if line.startswith("! ledger")]
            assert _SAID in line
            assert line.endswith("then purge again")
            assert ask(gateway) == 200


def ask(gateway: Process) -> int:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}
    headers = {"authorization": f"Bearer {KEYS['red']}"}
    url = f"{gateway.url}/chat/completions"
    return httpx.post(url, json=body, headers=headers, timeout=PATIENCE_S).status_code


def purged(gateway: Process) -> list[str]:
    """What the command says, a line a place."""
    command = [sys.executable, "-m", "gateway", "purge", "--url", gateway.admin, "--tenant", "red"]
    environ = {**os.environ, "KVGATE_ADMIN_KEY": ADMIN}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=300, check=False)
    assert done.returncode == 1, done.stderr
    return done.stdout.splitlines()


def rows(path: Path, least: int) -> int:
    """How many there are, whatever their schema is, when there are so many."""

    def count() -> int:
        with closing(sqlite3.connect(path)) as raw:
            return int(raw.execute("SELECT count(*) FROM requests").fetchone()[0])

    wait_until(lambda: count() >= least, f"{least} rows")
    return count()


def test_a_command_that_changes_the_schema_names_who_has_to_follow(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.prepare()
    with database.engine.begin() as connection:
        connection.execute(text(f"UPDATE ledger_schema SET version = {VERSION - 1}"))
    assert not caplog.records
    database.prepare()
    assert f"went from {VERSION - 1} to {VERSION}: gateways of older versions" in caplog.text
    caplog.clear()
    database.prepare()
    assert not caplog.records


def test_tables_that_were_dropped_under_a_writer_are_made_again(database: Database) -> None:
    writer = LedgerWriter(database, _FAST).start()
    writer.put(row(1))
    wait_until(lambda: writer.counts().written == 1, "the first row")
    other = Database(database.url)
    with other.engine.begin() as connection:
        for name in ("requests", "writers", "scrapes", "ledger_schema"):
            connection.execute(text(f"DROP TABLE {name}"))
    other.close()
    writer.put(row(2))
    wait_until(lambda: writer.counts().written == 2, "the second row, in new tables")
    writer.close()
