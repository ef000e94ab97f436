"""A process listens once it has read its tokenizers: no probe finds one that cannot count prompts yet."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.gateway.relay.fake_engine import fake_engine, whole
from tests.gateway.reload.served import served_file
from tests.tiny_models import save_tiny_model
from tests.waiting import PATIENCE_S

CONFIG = """engines: [{{name: one, kind: vllm, url: '{url}', models: [m], tokenizer: '{folder}'}}]
ledger: {{url: off}}
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_without_one_of_them_nothing_listens_and_the_key_is_named(tmp_path: Path, workers: str) -> None:
    file, folder = tmp_path / "kvgate.yaml", tmp_path / "tokenizer"
    folder.mkdir()
    (folder / "tokenizer.json").write_text("{")
    file.write_text(CONFIG.format(url="http://127.0.0.1:9", folder=folder))
    command = [sys.executable, "-m", "gateway", "serve", "--config", str(file), "--port", "0"]
    found = subprocess.run(
        [*command, "--workers", workers], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert found.returncode != 0
    assert "engines[0].tokenizer" in found.stderr
    assert "listening" not in found.stderr


def test_with_all_of_them_it_is_ready(tmp_path: Path) -> None:
    save_tiny_model("llama", tmp_path / "tokenizer")
    with fake_engine(lambda connection, _: connection.reply(whole(0))) as engine:
        text = CONFIG.format(url=engine.url, folder=tmp_path / "tokenizer")
        with served_file(tmp_path / "kvgate.yaml", text) as gateway:
            assert gateway.http.get(f"{gateway.url}/ready").status_code == 200
