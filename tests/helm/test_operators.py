"""Values that operators come with and no example has: what is rendered fits together, and kvgate takes its file."""

from typing import Any

import helm_python
import pytest
import yaml

from tests.helm.chart import EXAMPLES, check, example, file_of, one, render
from tests.helm.coherence import faults, templates
from tests.helm.test_chart import SHARED, SWITCHES

ARM = {"nodeSelector": {"kubernetes.io/arch": "arm64"}, "tolerations": [{"key": "arm", "operator": "Exists"}]}
OUTSIDE = {"to": [{"ipBlock": {"cidr": "10.8.0.0/16"}}], "ports": [443]}
ENGINE = {"name": "a", "kind": "vllm", "url": "http://a:8000"}

OPERATORS: dict[str, dict[str, Any]] = {
    "several engines": {
        "config": {
            "engines": [
                ENGINE,
                {
                    "name": "b",
                    "kind": "sglang",
                    "url": "http://b:30000",
                    "key": {"file": "/etc/kvgate/secret/b"},
                },
                {"name": "c", "kind": "openai", "url": "https://models.example.com"},
            ]
        },
        "networkPolicy": {"engines": [{"to": [{"podSelector": {}}], "ports": [8000, 30000]}, OUTSIDE]},
    },
    "ingress and TLS": {
        "ingress": {
            "enabled": True,
            "className": "nginx",
            "hosts": ["a.example.com", "b.example.com"],
            "tls": [{"secretName": "tls", "hosts": ["a.example.com", "b.example.com"]}],
        },
        "service": {"port": 80},
        "networkPolicy": {"clients": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}]},
    },
    "a route to another port": {
        "httpRoute": {"enabled": True, "parentRefs": [{"name": "public"}], "hostnames": ["a.example.com"]},
        "service": {"port": 9000},
    },
    "keda on a fleet": {
        **SHARED,
        "valkey": {"enabled": True},
        "serviceMonitor": {"enabled": True},
        "autoscaling": {"enabled": True, "kind": "keda", "prometheusAddress": "http://p:9090"},
    },
    "redis of another's": {
        **SHARED,
        "replicaCount": 2,
        "config": {
            "redis": {"url": "rediss://redis:6380/0", "password": {"file": "/etc/kvgate/secret/redis"}},
        },
    },
    "a secret of the chart's own": {
        "secret": {
            "existingSecret": "",
            "data": {
                "tenants.keys": "default sha256:" + "a" * 64,
                "admin.key": "a-key-of-admins-that-is-long",
                "valkey.password": "a-password-that-is-long",
            },
        },
        "valkey": {"enabled": True},
    },
    "an embedded engine on a GPU": {
        **example("gpu-embedded"),
        "priorityClassName": "high",
        "image": {"pullSecrets": [{"name": "registry"}]},
    },
    "nodes of another kind": {**ARM, "valkey": {"enabled": True, **ARM}},
    "other ports and a longer end": {
        "config": {"server": {"port": 9000, "grace_s": 7200.5, "drain_delay_s": 30}, "admin": {"port": 9001}},
        "serviceMonitor": {"enabled": True},
    },
    "no end to wait for": {"drain": {"preStopSeconds": 0, "delaySeconds": 0, "streamSeconds": 1}},
    "environment": {"extraEnv": [{"name": "KVGATE__USAGE", "value": "full"}], "workers": 4},
}
ALL = OPERATORS | SWITCHES | {path.stem: example(path.stem) for path in EXAMPLES} | {"defaults": {}}


@pytest.mark.parametrize("name", ALL)
def test_what_is_rendered_fits_together(name: str):
    objects = render(ALL[name])
    assert faults(objects) == []
    if name in OPERATORS:
        check(objects)


def test_the_time_to_end_and_all_ports_go_by_what_the_file_says():
    objects = render(OPERATORS["other ports and a longer end"])
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 5 + 30 + 7201 + 30
    assert [port["containerPort"] for port in pod["containers"][0]["ports"]] == [9000, 9001]


@pytest.mark.parametrize(
    ("values", "url"), [({}, "/var/lib/kvgate/ledger/ledger.db"), ({"ledger": {"type": "off"}}, "off")]
)
def test_an_audit_in_the_pod_reads_the_ledger_that_is_written(values: dict[str, Any], url: str):
    objects = render(values)
    environ = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "KVGATE_LEDGER", "value": url} in environ
    assert yaml.safe_load(file_of(objects))["ledger"]["url"] == url


def test_releases_that_watch_one_namespace_do_not_meet():
    (a, b) = (render(SWITCHES["endpoints"], namespace) for namespace in ("one", "two"))
    places = [
        {(e["metadata"]["namespace"], e["metadata"]["name"]) for e in each if e["kind"] == "Role"}
        for each in (a, b)
    ]
    assert not places[0] & places[1]


def test_a_long_name_leaves_room_for_what_kubernetes_puts_behind_it():
    objects = render(SWITCHES["engine"] | {"valkey": {"enabled": True}, "fullnameOverride": "n" * 63})
    for each in objects:
        if each["kind"] == "StatefulSet":
            assert len(each["metadata"]["name"]) <= 52  # and eleven characters of a hash are a label


def test_who_has_one_pod_is_not_kept_from_draining_its_node():
    assert not [each for each in render() if each["kind"] == "PodDisruptionBudget"]
    (budget,) = (e for e in render({**SHARED, "replicaCount": 2}) if e["kind"] == "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1


def test_every_pod_goes_to_the_nodes_that_its_image_is_for():
    for name, pod in templates(render(OPERATORS["nodes of another kind"])).items():
        assert pod["spec"]["nodeSelector"] == ARM["nodeSelector"], name
        assert pod["spec"]["tolerations"] == ARM["tolerations"], name


def test_another_password_makes_another_store_and_another_gateway():
    def stamps(password: str) -> set[str]:
        values = OPERATORS["a secret of the chart's own"]
        data = values["secret"]["data"] | {"valkey.password": password}
        objects = render(values | {"secret": {"existingSecret": "", "data": data}})
        pods = (templates(objects)[name] for name in ("kv-kvgate", "kv-kvgate-valkey"))
        return {pod["metadata"]["annotations"]["checksum/secret"] for pod in pods}

    assert len(stamps("one-password-of-many")) == 2
    assert not stamps("one-password-of-many") & stamps("another-password")


def test_both_scalers_take_pods_away_one_by_one():
    hpa = one(render(SWITCHES["hpa"]), "HorizontalPodAutoscaler")["spec"]["behavior"]
    keda = one(render(SWITCHES["keda"]), "ScaledObject")["spec"]["advanced"]
    assert keda["horizontalPodAutoscalerConfig"]["behavior"] == hpa
    assert hpa["scaleDown"]["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 120}]


@pytest.mark.parametrize("kind", ["hpa", "keda"])
def test_fewer_pods_than_there_must_be_are_refused(kind: str):
    values = SWITCHES[kind]["autoscaling"] | {"minReplicas": 5, "maxReplicas": 4}
    with pytest.raises(helm_python.HelmError, match=r"minReplicas is more than"):
        render(SHARED | {"autoscaling": values})
