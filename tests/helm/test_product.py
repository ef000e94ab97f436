"""The chart fits the product: its files load, its queries ask for metrics that there are, its image has no torch."""

import json
import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from typer.testing import CliRunner

from gateway.cli import app
from tests.helm.chart import EXAMPLES, ROOT, example, file_of, one, render
from tests.installed.closure import distributions, image_extras
from tests.tiny_models import save_tiny_model

CONFIGS: dict[str, dict[str, Any]] = {"defaults": {}} | {path.stem: example(path.stem) for path in EXAMPLES}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_rendered_file_is_one_that_kvgate_takes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = _as_in_a_pod(file_of(render(CONFIGS[name])), tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    result = CliRunner().invoke(app, ["config", "check", str(file)])
    assert result.exit_code == 0, result.output


def test_the_embedded_engine_s_file_is_one_that_kvgate_takes(tmp_path: Path):
    file = _as_in_a_pod(file_of(render(example("gpu-embedded")), "kv-kvgate-engine"), tmp_path)
    result = CliRunner().invoke(app, ["config", "check", str(file)])
    assert result.exit_code == 0, result.output


def test_the_embedded_engines_believe_the_gateway_and_let_in_nobody_else():
    objects = render(example("gpu-embedded"))
    inside = yaml.safe_load(file_of(objects, "kv-kvgate-engine"))
    assert "allow_no_keys" not in inside["server"]
    assert inside["tenants"] == [{"name": "gateway", "gateway": True}]
    (outside,) = yaml.safe_load(file_of(objects))["engines"]
    assert (outside["kind"], outside["key"]) == ("kvgate", {"file": "/etc/kvgate/secret/engine.key"})
    volumes = one(objects, "StatefulSet", "kv-kvgate-engine")["spec"]["template"]["spec"]["volumes"]
    (secret,) = [each["secret"] for each in volumes if each["name"] == "secret"]
    assert secret["items"] == [{"key": "engine.keys", "path": "engine.keys"}]


def test_what_the_file_says_counts_over_what_the_chart_would_say():
    engines = [{"name": "e", "kind": "vllm", "url": "http://e:1"}]
    values = {"config": {"engines": engines, "server": {"grace_s": 3}, "ledger": {"keep": "1d"}}}
    loaded = yaml.safe_load(file_of(render(values)))
    assert loaded["server"]["grace_s"] == 3
    assert loaded["server"]["host"] == "0.0.0.0"
    assert loaded["ledger"]["keep"] == "1d"


def test_queries_can_be_read_and_ask_for_metrics_that_are_documented():
    documented = set(re.findall(r"\b(?:kvgate|gen_ai)_[a-z_]+", _docs()))
    queries = [*_rules(), *_dashboard()]
    assert len(queries) > 20
    for query in queries:
        promql_parser.parse(query.replace("$__rate_interval", "5m"))
        asked = {name for name in re.findall(r"\b(?:kvgate|gen_ai)_[a-z_]+", query) if name not in _LABELS}
        unknown = {name for name in asked if name not in documented and _base(name) not in documented}
        assert not unknown, query


def test_whatever_goes_on_in_part_without_a_failed_request_has_an_alert():
    queries = " ".join(_rules())
    for metric in (
        "kvgate_engine_up",
        "kvgate_ledger_failing",
        "kvgate_ledger_rows_total",
        "kvgate_shared_state_away",
        "kvgate_config_reload_failed",
    ):
        assert f"{metric}{{" in queries


def test_images_are_pinned_and_run_as_nobody():
    text = (ROOT / "Dockerfile").read_text()
    assert re.search(r"^ARG PYTHON=\S+@sha256:[0-9a-f]{64}$", text, re.MULTILINE)
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", text, re.MULTILINE))
    assert set(bases) <= stages | {"${PYTHON}"}
    assert re.search(r"^USER [1-9][0-9]*:[1-9][0-9]*$", text, re.MULTILINE)
    assert re.findall(r"^FROM \S+ AS (\S+)$", text, re.MULTILINE)[-1] == "gateway"


def test_what_only_root_may_do_is_over_in_every_image():
    stages = re.split(r"^FROM .* AS (\S+)$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    texts = dict(zip(stages[1::2], stages[2::2], strict=True))
    for name in ("engine", "gateway"):
        users = re.findall(r"^USER (\S+)$", texts["base"] + texts[name], re.MULTILINE)
        assert users[-1] == "10001:10001", name


def test_the_engine_s_image_can_build_its_kernels_where_it_may_write():
    text = (ROOT / "Dockerfile").read_text().partition("FROM base AS engine\n")[2].partition("\nFROM ")[0]
    assert re.search(r"^RUN apt-get .* g\+\+ ", text, re.MULTILINE)
    folders = re.findall(r"(?:TRITON_CACHE_DIR|CUDA_CACHE_PATH)=(\S+)", text)
    pod = one(render(example("gpu-embedded")), "StatefulSet", "kv-kvgate-engine")["spec"]["template"]["spec"]
    mounts = [
        mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"] if not mount.get("readOnly")
    ]
    assert len(folders) == 2
    assert all(any(folder.startswith(f"{mount}/") for mount in mounts) for folder in folders)


def test_the_gateway_s_image_has_no_torch():
    wanted = distributions(image_extras("build-gateway"))
    assert {"sqlalchemy", "redis", "psycopg"} <= wanted
    assert not wanted & {"torch", "transformers", "safetensors", "pyarrow"}


def test_everything_that_the_image_copies_is_let_through_to_the_build():
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    let = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {name for line in copied for name in line.split()} == let
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    assert packages <= let


_LABELS = frozenset(
    {
        "kvgate_engine",
        "kvgate_replica",
        "kvgate_tier",
        "kvgate_reuse_class",
        "kvgate_reuse_status",
        "gen_ai_request_model",
    }
)


def _base(name: str) -> str:
    return re.sub(r"_(bucket|count|sum|total)$", "", name)


def _docs() -> str:
    return "\n".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))


def _rules() -> list[str]:
    groups = one(render({"prometheusRule": {"enabled": True}}), "PrometheusRule")["spec"]["groups"]
    return [rule["expr"] for group in groups for rule in group["rules"]]


def _dashboard() -> list[str]:
    text = one(render({"dashboard": {"enabled": True}}), "ConfigMap", "kv-kvgate-dashboard")["data"][
        "kvgate.json"
    ]
    return [target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"]]


def _as_in_a_pod(text: str, folder: Path) -> Path:
    """The file with a pod's folders under `folder`."""
    secrets = folder / "secret"
    secrets.mkdir()
    for name in ("admin.key", "engine.key", "salt", "ledger.url", "valkey.password", "redis.password"):
        (secrets / name).write_text("s" * 40)
    lines = [f"{tenant} sha256:{'a' * 63}{n}" for n, tenant in enumerate(_tenants(text))]
    for name in ("tenants.keys", "engine.keys"):
        (secrets / name).write_text("\n".join(lines) + "\n")
    save_tiny_model("llama", folder / "tokenizers" / "qwen3")
    file = folder / "kvgate.yaml"
    file.write_text(
        text.replace("/etc/kvgate", str(folder)).replace("/var/lib/kvgate", str(folder / "state"))
    )
    return file


def _tenants(text: str) -> list[str]:
    return [tenant["name"] for tenant in yaml.safe_load(text).get("tenants", ())]
