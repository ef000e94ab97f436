from pathlib import Path

import pytest

from gateway.ledger import LedgerConfigError, open_writer
from gateway.ledger.place import ledger_url


def test_off_is_no_ledger() -> None:
    assert ledger_url("off", {}) is None
    assert ledger_url(None, {"KVGATE_LEDGER": "off"}) is None
    assert open_writer("off", {}) is None


def test_what_is_stated_counts_before_the_environment() -> None:
    url = ledger_url("/x/rows.db", {"KVGATE_LEDGER": "off"})
    assert url is not None
    assert (url.drivername, url.database) == ("sqlite", "/x/rows.db")


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_postgres_is_reached_by_psycopg_whatever_it_is_called(scheme: str) -> None:
    url = ledger_url(f"{scheme}://u:p@h:5/d", {})
    assert url is not None
    assert (url.drivername, url.host, url.port, url.database) == ("postgresql+psycopg", "h", 5, "d")


@pytest.mark.parametrize(
    "stated", ["mysql://u:hush@h/d", "sqlite://", "sqlite:///:memory:", "postgresql://u:hush@h:x/d"]
)
def test_what_cannot_be_a_ledger_is_refused_without_its_password(stated: str) -> None:
    with pytest.raises(LedgerConfigError) as raised:
        ledger_url(stated, {})
    assert "hush" not in str(raised.value)


def test_a_place_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerConfigError, match="--ledger"):
        open_writer(str(tmp_path / "file" / "ledger.db"), {})


def test_a_folder_is_no_ledger_and_is_said_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(LedgerConfigError, match="Is a directory; name another place"):
        open_writer(str(tmp_path), {})


def test_a_ledger_may_be_a_link_to_where_it_is_not_yet(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "ledger.db")
    writer = open_writer(str(tmp_path / "link.db"), {})
    assert writer is not None
    writer.close()
    assert (tmp_path / "ledger.db").stat().st_mode & 0o777 == 0o600


def test_a_server_that_is_away_does_not_keep_a_gateway_from_starting() -> None:
    writer = open_writer("postgresql://nobody@127.0.0.1:1/none", {})
    assert writer is not None
    writer.close(wait_s=0.1)
