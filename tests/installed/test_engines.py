"""The engine's image serves with what its extras bring, cold tiers included."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.installed.closure import image_extras
from tests.installed.installed import Installed
from tests.tiny_models import Arch

SECRET = {"SECRET": "a secret of some thirty-two bytes"}
CHAT = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "Does it start?"}],
    "max_tokens": 24,
    "logprobs": True,
    "response_format": {"type": "json_object"},
}


def test_the_embedded_engine_answers_with_a_grammar_over_encrypted_tiers(
    tiny_model: Callable[[Arch], Path], tmp_path: Path
) -> None:
    install = Installed(image_extras("build-engine"), tmp_path)
    engine = {
        "kind": "embedded", "model": str(tiny_model("llama")), "served_model_name": "tiny", "device": "cpu",
        "kv_cache_gib": 0.05, "host_cache_gib": 0.05, "disk_cache_dir": str(tmp_path / "disk"), "disk_cache_gib": 0.05,
        "cold": {"compression": 3, "secret": {"env": "SECRET"}},
    }  # fmt: skip
    config = tmp_path / "kvgate.yaml"
    config.write_text(json.dumps({"engines": [engine], "ledger": {"url": str(tmp_path / "ledger.db")}}))
    # Kernels that were built before are those of any install.
    cache = {"XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))}
    with install.serving(config, SECRET | cache) as served:
        answer = httpx.post(f"{served.url}/v1/chat/completions", json=CHAT, timeout=600)
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["message"]["content"].startswith("{")
