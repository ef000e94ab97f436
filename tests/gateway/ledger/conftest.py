"""A ledger in SQLite and, where it is installed, in a PostgreSQL of this test run's own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import URL

from gateway.ledger import Database
from gateway.ledger.place import ledger_url
from tests.gateway.ledger.postgres import Postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A server of its own, stopped and removed at the end."""
    with Postgres.started() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> URL:
    """An empty ledger's URL, of each kind."""
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        stated = server.new_database()
    else:
        stated = str(tmp_path / "state" / "ledger.db")
    url = ledger_url(stated, os.environ)
    assert url is not None
    return url


@pytest.fixture
def database(url: URL) -> Iterator[Database]:
    """That ledger, opened."""
    database = Database(url)
    yield database
    database.close()
