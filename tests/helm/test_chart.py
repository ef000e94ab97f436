"""What Helm makes of the chart: valid whatever is switched on, safe, and for the product as it is."""

import copy
import itertools
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

from tests.helm.chart import CHART, EXAMPLES, check, example, one, render, rendered_text

GOLDEN = Path(__file__).parent / "golden" / "defaults.yaml"
SECRET = {"secret": {"existingSecret": "kvgate"}}
OPEN = {  # nobody needs a key
    "secret": {"existingSecret": ""},
    "tenantKeys": {"enabled": False},
    "admin": {"enabled": False},
    "config": {
        "server": {"allow_no_keys": True},
        "tenants": [],
        "engines": [{"name": "e", "kind": "vllm", "url": "http://e:1"}],
    },
}
SHARED = {**SECRET, "ledger": {"type": "postgresql"}}

# Every switch of the values, each with what it needs.
SWITCHES: dict[str, dict[str, Any]] = {
    "replicas": {**SHARED, "replicaCount": 3},
    "workers": {"workers": 4},
    "digest": {"image": {"digest": "sha256:" + "a" * 64}},
    "pull_secrets": {"image": {"pullSecrets": [{"name": "registry"}]}},
    "own_secret": {"secret": {"existingSecret": "", "data": {"admin.key": "s"}}},
    "other_secret": {"secret": {"existingSecret": "mine"}},
    "no_keys": OPEN,
    "ledger_off": {"ledger": {"type": "off"}},
    "ledger_empty_dir": {"ledger": {"persistence": {"enabled": False}}},
    "ledger_claim": {"ledger": {"persistence": {"existingClaim": "mine"}}},
    "ledger_class": {"ledger": {"persistence": {"storageClass": "fast"}}},
    "ledger_postgresql": SHARED,
    "ledger_other_secret": {"ledger": {"type": "postgresql", "postgresql": {"existingSecret": "db"}}},
    "valkey": {**SECRET, "valkey": {"enabled": True}},
    "tokenizers": {"tokenizers": [{"name": "qwen3", "volume": {"configMap": {"name": "tokenizer"}}}]},
    "load_balancer": {"service": {"type": "LoadBalancer", "annotations": {"a": "b"}}},
    "ingress": {"ingress": {"enabled": True, "hosts": ["a.example.com"], "annotations": {"a": "b"}}},
    "http_route": {"httpRoute": {"enabled": True, "parentRefs": [{"name": "public"}]}},
    "no_account": {"serviceAccount": {"create": False}},
    "account": {"serviceAccount": {"name": "mine", "annotations": {"a": "b"}}},
    "hpa": {**SHARED, "autoscaling": {"enabled": True}},
    "keda": {
        **SHARED,
        "autoscaling": {"enabled": True, "kind": "keda", "prometheusAddress": "http://prometheus:9090"},
    },
    "no_budget": {**SHARED, "replicaCount": 2, "podDisruptionBudget": {"enabled": False}},
    "no_policy": {"networkPolicy": {"enabled": False}},
    "events": {"networkPolicy": {"engines": [{"to": [], "ports": [8000], "kvEventPorts": [5557]}]}},
    "service_monitor": {"serviceMonitor": {"enabled": True, "labels": {"release": "p"}}},
    "rules": {"prometheusRule": {"enabled": True, "labels": {"release": "p"}}},
    "dashboard": {"dashboard": {"enabled": True}},
    "names": {"nameOverride": "gate", "fullnameOverride": "gate"},
    "endpoints": {
        "config": {
            "engines": [
                {
                    "name": "a",
                    "kind": "vllm",
                    "replicas": {"kubernetes": {"namespace": "x", "service": "s", "port": 1}},
                },
                {"name": "b", "kind": "vllm", "replicas": {"kubernetes": {"service": "s", "port": 1}}},
            ]
        }
    },
    "pods": {
        "nodeSelector": {"a": "b"},
        "affinity": {"podAntiAffinity": {}},
        "tolerations": [{"operator": "Exists"}],
        "podLabels": {"a": "b"},
        "podAnnotations": {"a": "b"},
        "extraEnv": [{"name": "A", "value": "b"}],
        "extraEnvFrom": [{"secretRef": {"name": "a"}}],
        "extraVolumes": [{"name": "a", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "a", "mountPath": "/a"}],
        "priorityClassName": "high",
        "spreadOverNodes": "DoNotSchedule",
    },
    "engine": {"engine": {"enabled": True}},
    "engine_without_models": {"engine": {"enabled": True, "models": {"enabled": False}}},
    "engine_pods": {
        "engine": {
            "enabled": True,
            "replicaCount": 3,
            "nvme": {"size": "1Ti", "storageClass": "nvme"},
            "models": {"enabled": True, "size": "1Gi", "storageClass": "disk"},
            "extraEnv": [{"name": "A", "value": "b"}],
            "extraVolumes": [{"name": "a", "emptyDir": {}}],
            "extraVolumeMounts": [{"name": "a", "mountPath": "/a"}],
            "nodeSelector": {"a": "b"},
            "affinity": {"podAntiAffinity": {}},
            "tolerations": [{"operator": "Exists"}],
        }
    },
}


def test_linted_strictly_it_has_no_error():
    assert helm_python.lint(str(CHART), strict=True)["errors"] == []


def test_the_defaults_are_what_they_were():
    """Written anew by `python -m tests.helm.golden`."""
    assert rendered_text() == GOLDEN.read_text()


@pytest.mark.parametrize("switch", SWITCHES)
def test_with_each_switch_all_objects_are_valid(switch: str):
    check(render(SWITCHES[switch]))


@pytest.mark.parametrize("pair", list(itertools.combinations(SWITCHES, 2)), ids="+".join)
def test_two_switches_go_together(pair: tuple[str, str]):
    values = merged(SWITCHES[pair[0]], SWITCHES[pair[1]])
    try:
        objects = render(values)
    except helm_python.HelmError as error:
        refused = str(error)
    else:
        refused = ""
    if refused:
        # What one switch needs, the other may take away: the chart says so, and Helm does not stumble.
        assert "values don't meet" in refused or "need a key" in refused or "key alone" in refused, refused
        return
    names = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in objects]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_valid(path: Path):
    check(render(yaml.safe_load(path.read_text())))


@pytest.mark.parametrize("values", [{}, *map(yaml.safe_load, (p.read_text() for p in EXAMPLES))])
def test_every_pod_is_as_small_a_risk_as_it_can_be(values: dict[str, Any]):
    for spec in pods(render(values)):
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            inside = container["securityContext"]
            assert inside["readOnlyRootFilesystem"] is True
            assert inside["allowPrivilegeEscalation"] is False
            assert inside["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]
            reference = container["image"]
            assert "@sha256:" in reference or reference.rpartition(":")[2] not in ("latest", "stable", "")


@pytest.mark.parametrize("name", ["sglang-fleet", "vllm-fleet", "gpu-embedded"])
def test_engines_and_stores_are_reached_by_those_who_need_them_alone(name: str):
    policies = [each for each in render(example(name)) if each["kind"] == "NetworkPolicy"]
    for policy in policies:
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
        component = policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
        if component != "gateway":
            (rule,) = policy["spec"]["ingress"]
            (source,) = rule["from"]
            assert source["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "gateway"


def test_events_of_engines_have_their_port_open():
    policy = one(render(example("sglang-fleet")), "NetworkPolicy", "kv-kvgate")
    ports = [port["port"] for rule in policy["spec"]["egress"] for port in rule.get("ports", ())]
    assert {30000, 5557, 6379, 5432, 443} <= set(ports)


def test_a_pod_has_longer_to_end_than_its_streams():
    values = {"drain": {"preStopSeconds": 7, "delaySeconds": 11, "streamSeconds": 900}}
    pod = one(render(values), "Deployment")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > 7 + 11 + 900


def test_another_configuration_makes_other_pods():
    def checksum(values: dict[str, Any]) -> str:
        template = one(render(values), "Deployment")["spec"]["template"]
        found = template["metadata"]["annotations"]["checksum/config"]
        assert isinstance(found, str)
        return found

    assert checksum({}) == checksum({"resources": {"requests": {"cpu": "2"}}})
    assert checksum({}) != checksum({"workers": 2})


def test_endpoints_are_read_where_engines_are_and_nothing_else_is():
    objects = render(SWITCHES["endpoints"])
    roles = [each for each in objects if each["kind"] == "Role"]
    assert [role["metadata"]["namespace"] for role in roles] == ["x", "llm"]
    for role in roles:
        assert role["rules"] == [
            {
                "apiGroups": ["discovery.k8s.io"],
                "resources": ["endpointslices"],
                "verbs": ["get", "list", "watch"],
            }
        ]
    assert not [each for each in render() if each["kind"] == "Role"]


REFUSED: dict[str, dict[str, Any]] = {
    "replicas on a file": {"replicaCount": 2},
    "autoscaling on a file": {"autoscaling": {"enabled": True}},
    "a tag that moves": {"image": {"tag": "latest"}},
    "a tag that moves, of a kind": {"image": {"tag": "latest-gpu"}},
    "a bare major version": {"valkey": {"image": {"tag": "8-alpine"}}},
    "a digest that is none": {"image": {"digest": "sha256:1"}},
    "no engine": {"config": {"engines": []}},
    "a store without a password": {**OPEN, "valkey": {"enabled": True}},
    "keys that are nowhere": {"secret": {"existingSecret": ""}},
    "keda without prometheus": {**SHARED, "autoscaling": {"enabled": True, "kind": "keda"}},
    "an ingress without a host": {"ingress": {"enabled": True}},
    "a route without a gateway": {"httpRoute": {"enabled": True}},
    "a key that nothing reads": {"replicas": 2},
    "a key that nothing reads, further in": {"ledger": {"kind": "off"}},
    "a secret of the chart's own that another one hides": {"secret": {"data": {"admin.key": "s"}}},
    "a database that no secret names": {**OPEN, "ledger": {"type": "postgresql"}},
    "a key of an engine in a ConfigMap": {
        "config": {"engines": [{"name": "e", "kind": "vllm", "key": "sk-1"}]}
    },
    "a salt in a ConfigMap": {"config": {"salt_secret": "s" * 40}},
    "a password in a ConfigMap": {"config": {"redis": {"url": "redis://r:6379/0", "password": "s"}}},
    "a password in an address": {"config": {"redis": {"url": "redis://:s@r:6379/0"}}},
    "a ledger in a file of several pods": {
        **SHARED,
        "replicaCount": 2,
        "config": {"ledger": {"url": "/a.db"}},
    },
    "a host that no probe reaches": {"config": {"server": {"host": "127.0.0.1"}}},
    "a port that nobody may open": {"config": {"server": {"port": 80}}},
    "an engine without a port": {"networkPolicy": {"engines": [{"to": [], "ports": []}]}},
    "no time for streams": {"drain": {"streamSeconds": 0}},
}


@pytest.mark.parametrize("values", REFUSED.values(), ids=REFUSED)
def test_what_cannot_work_is_refused_by_the_schema(values: dict[str, Any]):
    with pytest.raises(helm_python.HelmError, match=r"values don't meet|schema"):
        render(values)


def test_it_is_not_open_to_everyone_by_mistake():
    with pytest.raises(helm_python.HelmError, match="Nobody would need a key"):
        render({"tenantKeys": {"enabled": False}})


def pods(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = [each["spec"]["template"]["spec"] for each in objects if "template" in each.get("spec", {})]
    return found + [each["spec"] for each in objects if each["kind"] == "Pod"]


def merged(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    result = copy.deepcopy(a)
    for key, value in b.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result
