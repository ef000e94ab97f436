"""The admin port of a server with several processes."""

from pathlib import Path

import httpx
import pytest

from tests.gateway.relay.fake_engine import FakeEngine, fake_engine, whole
from tests.gateway.reload.served import served_file

KEY = "an admin key of thirty characters"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_it_is_said_where_admins_are_answered_and_they_are_told_of_all_workers(
    tmp_path: Path, workers: str
) -> None:
    with fake_engine(lambda connection, _: connection.reply(whole(0))) as engine:
        file, text = tmp_path / "kvgate.yaml", _config(engine)
        with served_file(file, text, "--workers", workers, ADMIN=KEY) as gateway:
            line = gateway.wait_for("admins are answered on ")["message"]
            url, headers = line.split()[-1], {"authorization": f"Bearer {KEY}"}
            assert httpx.get(f"{url}/metrics", timeout=60).status_code == 401
            figures = httpx.get(f"{url}/metrics", headers=headers, timeout=60)
            assert figures.status_code == 200
            assert ("kvgate_workers 2.0" in figures.text) == (workers == "2")
            assert len(gateway.said("admins are answered on")) == 1


def _config(engine: FakeEngine) -> str:
    entry = f"{{name: one, kind: openai, url: '{engine.url}', models: [m]}}"
    return f"engines: [{entry}]\nledger: {{url: off}}\nadmin: {{port: 0, key: {{env: ADMIN}}}}\n"
