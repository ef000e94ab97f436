"""A gateway works with what its install brings: the base alone, and the extras of its image."""

import csv
import io
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from bench.gateway.bodies import MODEL
from bench.gateway.processes import module
from gateway.tenants.keys import hash_of
from tests.gateway.kv_events.publishing import publisher
from tests.gateway.ledger.postgres import Postgres
from tests.gateway.telemetry.collector import collector
from tests.installed.closure import image_extras
from tests.installed.installed import Installed
from tests.output_tokenizers import byte_tokenizer
from tests.redis_server import RedisServer
from tests.waiting import wait_until

KEY = "kvg_alice-0123456789abcd"
SECRETS = {"ADMIN": "an admin key of thirty characters", "SECRET": "a secret of some thirty-two bytes"}
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Does it start?"}]}


@pytest.fixture
def upstream(tmp_path: Path) -> Iterator[str]:
    """An engine in a process of its own, with all that is installed here."""
    with module("upstream", [], tmp_path, None) as running:
        yield f"http://127.0.0.1:{running.port}"


def written(folder: Path, **config: Any) -> Path:
    """A file with that configuration over what all have."""
    tenants = [{"name": "alice", "keys": [hash_of(KEY)]}]
    admin = {"port": 0, "key": {"env": "ADMIN"}, "metrics": "both"}
    file = folder / "kvgate.yaml"
    file.write_text(json.dumps({"tenants": tenants, "admin": admin, "canon_policy": ["safe"], **config}))
    return file


def tokenizer_folder(folder: Path) -> Path:
    folder.mkdir()
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"})
    )
    return folder


def ask(url: str, key: str = KEY) -> None:
    """A chat whole, and streamed."""
    headers = {"authorization": f"Bearer {key}"}
    with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
        whole = client.post("/v1/chat/completions", json=CHAT)
        assert whole.status_code == 200, whole.text
        assert whole.json()["choices"][0]["message"]["content"] == "Yes, it is."
        streamed = client.post("/v1/chat/completions", json=CHAT | {"stream": True})
        assert streamed.text.rstrip().endswith("data: [DONE]"), streamed.text


def rows_of(install: Installed, ledger: str) -> list[dict[str, str]]:
    done = install.run("ledger", "export", "--ledger", ledger)
    assert done.returncode == 0, done.stderr
    return list(csv.DictReader(io.StringIO(done.stdout)))


def audited(install: Installed, ledger: str) -> str:
    done = install.run("audit", "--json", "--by", "tenant", "--ledger", ledger)
    assert done.stdout, done.stderr
    return done.stdout


def purged(install: Installed, admin: str) -> dict[str, Any]:
    done = install.run(
        "purge", "--tenant", "alice", "--url", admin, "--key-env", "ADMIN", "--json", **SECRETS
    )
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_base_alone_serves_counts_and_audits(upstream: str, tmp_path: Path) -> None:
    install, ledger = Installed([], tmp_path), str(tmp_path / "ledger.db")
    engine = {
        "kind": "openai", "name": "up", "replicas": [upstream], "models": [MODEL],
        "tokenizer": str(tokenizer_folder(tmp_path / "model")),
    }  # fmt: skip
    config = written(tmp_path, engines=[engine], ledger={"url": ledger})
    assert (checked := install.run("config", "check", str(config), **SECRETS)).returncode == 0, checked
    with install.serving(config, SECRETS) as served:
        ask(served.url)
        assert "kvgate_requests" in httpx.get(f"{served.url}/metrics", timeout=60).text
        doctor = install.run("doctor", served.url, "--key-env", "KEY", "--words", "64", "--json", KEY=KEY)
        assert json.loads(doctor.stdout), doctor.stderr
        wait_until(lambda: len(rows_of(install, ledger)) > 2, "rows in the ledger", 300)
        assert "alice" in audited(install, ledger)
        assert purged(install, served.admin)["tenant"] == "alice"
    assert rows_of(install, ledger) == []


def test_the_image_s_extras_serve_with_everything_that_a_configuration_may_ask_for(
    upstream: str, tmp_path: Path
) -> None:
    install = Installed(image_extras("build-gateway"), tmp_path)
    key = ec.generate_private_key(ec.SECP256R1())
    public = {**json.loads(ECAlgorithm.to_jwk(key.public_key())), "kid": "one"}
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [public]}))
    issuer = "https://login.example.com"
    claims = {"iss": issuer, "aud": "kvgate", "exp": time.time() + 600, "tenant": "alice"}
    token = jwt.encode(claims, key, "ES256", headers={"kid": "one"})
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer.started())
        ledger = stack.enter_context(Postgres.started()).new_database()
        traces = stack.enter_context(collector())
        events = stack.enter_context(publisher())
        engine = {
            "kind": "vllm", "name": "up", "replicas": [upstream], "models": [MODEL], "probe": False,
            "tokenizer": str(tokenizer_folder(tmp_path / "model")), "kv_events": {"port": events.port},
        }  # fmt: skip
        config = written(
            tmp_path,
            engines=[engine],
            ledger={"url": ledger},
            otlp_endpoint=traces.url,
            redis={"url": redis.url},
            memory={"store": "redis", "secret": {"env": "SECRET"}},
            directory={},
            jwt={"issuer": issuer, "audience": "kvgate", "jwks_file": str(tmp_path / "keys.json")},
            server={"workers": 2},
        )
        with install.serving(config, SECRETS) as served:
            events.wait_for_a_listener()
            ask(served.url)
            ask(served.url, token)
            assert "kvgate_requests" in httpx.get(f"{served.url}/metrics", timeout=60).text
        assert [row["tenant"] for row in rows_of(install, ledger)] == ["alice"] * 4
        assert "alice" in audited(install, ledger)
        assert traces.servers()
