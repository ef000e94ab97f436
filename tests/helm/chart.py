"""The chart, rendered by Helm itself and checked against schemas of Kubernetes and of what is installed beside it."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import helm_python
import jsonschema
import kubernetes_validate
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "kvgate"
EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))
_CRDS = Path(__file__).parent / "crds"
_OLDEST, _NEWEST = "1.27", "1.37"


def example(name: str) -> dict[str, Any]:
    """Values of one of the chart's examples."""
    loaded = yaml.safe_load((CHART / "examples" / f"{name}.yaml").read_text())
    assert isinstance(loaded, dict)
    return loaded


def render(values: Mapping[str, Any] | None = None, namespace: str = "llm") -> list[dict[str, Any]]:
    """All objects, as `helm install kv helm/kvgate -n llm -f VALUES` would send them."""
    texts = _chart().render(dict(values or {}), name="kv", namespace=namespace)
    manifests = [text for path, text in sorted(texts.items()) if not path.endswith(".txt")]
    return [each for text in manifests for each in yaml.safe_load_all(text) if each]


@cache
def _chart() -> helm_python.Chart:
    return helm_python.Chart.load(str(CHART))


def rendered_text(values: Mapping[str, Any] | None = None) -> str:
    """The same, as one file."""
    return yaml.safe_dump_all(render(values), sort_keys=True, width=110)


def check(objects: list[dict[str, Any]]) -> None:
    """Every object is one that the oldest and the newest Kubernetes take, without a field they do not know."""
    for each in objects:
        group = each["apiVersion"].replace("/", "_")
        own = _CRDS / f"{group}_{each['kind']}.json"
        if own.exists():
            jsonschema.validate(each, json.loads(own.read_text()))
        else:
            for version in (_OLDEST, _NEWEST):
                kubernetes_validate.validate(each, version, strict=True)


def one(objects: list[dict[str, Any]], kind: str, name: str | None = None) -> dict[str, Any]:
    """The only object of a kind, or the one of that name."""
    found = [e for e in objects if e["kind"] == kind and name in (None, e["metadata"]["name"])]
    assert len(found) == 1, f"{len(found)} of {kind} {name or ''}"
    return found[0]


def file_of(objects: list[dict[str, Any]], name: str = "kv-kvgate") -> str:
    """The configuration file in a ConfigMap."""
    text = one(objects, "ConfigMap", name)["data"]["kvgate.yaml"]
    assert isinstance(text, str)
    return text
