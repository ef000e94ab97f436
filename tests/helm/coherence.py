"""What a strict reader of rendered objects would find: names that lead nowhere, ports of nobody, ends too early."""

from collections.abc import Iterator
from typing import Any

import yaml

Objects = list[dict[str, Any]]
_WRITTEN = ("/tmp", "/var/lib/kvgate")  # by kvgate, whatever is configured


def faults(objects: Objects) -> list[str]:
    """What does not fit; empty: all does."""
    checks = (_services, _policies, _targets, _monitors, _backends, _roles, _pods, _secrets)
    return [fault for check in checks for fault in check(objects)]


def templates(objects: Objects) -> dict[str, dict[str, Any]]:
    """Pods by the name of what makes them, with labels and spec."""
    made = {e["metadata"]["name"]: e["spec"]["template"] for e in objects if "template" in e.get("spec", {})}
    return made | {e["metadata"]["name"]: e for e in objects if e["kind"] == "Pod"}


def _of(objects: Objects, *kinds: str) -> list[dict[str, Any]]:
    return [each for each in objects if each["kind"] in kinds]


def _chosen(objects: Objects, labels: dict[str, str]) -> list[dict[str, Any]]:
    pods = templates(objects).values()
    return [pod for pod in pods if labels.items() <= pod["metadata"]["labels"].items()]


def _ports(pod: dict[str, Any]) -> dict[str, int]:
    found = (port for container in pod["spec"]["containers"] for port in container.get("ports", ()))
    return {port["name"]: port["containerPort"] for port in found}


def _services(objects: Objects) -> Iterator[str]:
    for service in _of(objects, "Service"):
        pods = _chosen(objects, service["spec"]["selector"])
        if len(pods) != 1:
            yield f"service {service['metadata']['name']} leads to {len(pods)} kinds of pods"
        for port in service["spec"]["ports"]:
            if any(port["targetPort"] not in _ports(pod) for pod in pods):
                yield f"service {service['metadata']['name']}: no port {port['targetPort']}"


def _policies(objects: Objects) -> Iterator[str]:
    kept = 0
    for policy in _of(objects, "NetworkPolicy"):
        pods = _chosen(objects, policy["spec"]["podSelector"]["matchLabels"])
        kept += len(pods)
        for rule in policy["spec"]["ingress"]:
            for port in rule["ports"]:
                if any(port["port"] not in _ports(pod) for pod in pods):
                    yield f"policy {policy['metadata']['name']}: no port {port['port']}"
        asks = [pod for pod in templates(objects).values() if "helm.sh/hook" in str(pod["metadata"])]
        if policy["metadata"]["labels"]["app.kubernetes.io/component"] == "gateway":
            sources = policy["spec"]["ingress"][0].get("from")
            for pod in asks if sources else ():
                if not any(_selects(source, pod) for source in sources):
                    yield "helm test is kept out"
    if (
        kept and kept != len(templates(objects)) - 1
    ):  # the test's pod lives for a moment, and nobody reaches it
        yield "a pod without a policy"


def _selects(source: dict[str, Any], pod: dict[str, Any]) -> bool:
    labels = source.get("podSelector", {}).get("matchLabels", {None: ""})
    return "namespaceSelector" not in source and labels.items() <= pod["metadata"]["labels"].items()


def _targets(objects: Objects) -> Iterator[str]:
    names = {(each["kind"], each["metadata"]["name"]) for each in objects}
    for scaler in _of(objects, "HorizontalPodAutoscaler", "ScaledObject"):
        target = scaler["spec"]["scaleTargetRef"]
        if (target["kind"], target["name"]) not in names:
            yield f"{scaler['kind']} scales nothing"
    for budget in _of(objects, "PodDisruptionBudget"):
        if len(_chosen(objects, budget["spec"]["selector"]["matchLabels"])) != 1:
            yield "a budget of no pods"


def _monitors(objects: Objects) -> Iterator[str]:
    for monitor in _of(objects, "ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        services = [e for e in _of(objects, "Service") if wanted <= e["metadata"]["labels"].items()]
        (endpoint,) = monitor["spec"]["endpoints"]
        if [p["name"] for e in services for p in e["spec"]["ports"]] != [endpoint["port"]]:
            yield "what is scraped is not one port of one service"


def _backends(objects: Objects) -> Iterator[str]:
    services = {e["metadata"]["name"]: e["spec"]["ports"] for e in _of(objects, "Service")}
    wanted = [
        (path["backend"]["service"]["name"], path["backend"]["service"]["port"]["name"])
        for ingress in _of(objects, "Ingress")
        for rule in ingress["spec"]["rules"]
        for path in rule["http"]["paths"]
    ] + [
        (backend["name"], backend["port"])
        for route in _of(objects, "HTTPRoute")
        for rule in route["spec"]["rules"]
        for backend in rule["backendRefs"]
    ]
    for name, port in wanted:
        if not any(port in (each["name"], each["port"]) for each in services.get(name, ())):
            yield f"a route to {name}:{port}, which is not there"


def _roles(objects: Objects) -> Iterator[str]:
    accounts = {e["metadata"]["name"] for e in _of(objects, "ServiceAccount")} | {"default"}
    used = {pod["spec"].get("serviceAccountName") for pod in templates(objects).values()}
    roles = {(e["metadata"]["namespace"], e["metadata"]["name"]) for e in _of(objects, "Role")}
    for binding in _of(objects, "RoleBinding"):
        if (binding["metadata"]["namespace"], binding["roleRef"]["name"]) not in roles:
            yield "a binding to no role"
        for subject in binding["subjects"]:
            if subject["name"] not in used or subject["name"] not in accounts:
                yield f"rights of {subject['name']}, whom no pod is"
    mounted = any(pod["spec"].get("automountServiceAccountToken") for pod in templates(objects).values())
    if mounted != bool(roles):
        yield "a token without rights, or rights without a token"


def _pods(objects: Objects) -> Iterator[str]:
    claims = {
        claim["metadata"]["name"]
        for each in _of(objects, "StatefulSet")
        for claim in each["spec"].get("volumeClaimTemplates", ())
    }
    for name, pod in templates(objects).items():
        spec = pod["spec"]
        volumes = {volume["name"] for volume in spec.get("volumes", ())} | claims
        for container in spec["containers"]:
            mounts = {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts", ())}
            if not set(mounts.values()) <= volumes:
                yield f"{name}: a mount of no volume"
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                asked = container.get(probe, {})
                port = (asked.get("httpGet") or asked.get("tcpSocket") or {"port": None})["port"]
                if port is not None and port not in _ports(pod):
                    yield f"{name}: {probe} asks no port"
            if "serve" in container.get("args", ()):
                yield from _served(objects, name, pod, mounts)


def _served(objects: Objects, name: str, pod: dict[str, Any], mounts: dict[str, str]) -> Iterator[str]:
    (file,) = (e for e in _of(objects, "ConfigMap") if e["metadata"]["name"] == name)
    config = yaml.safe_load(file["data"]["kvgate.yaml"])
    if not set(_WRITTEN) <= mounts.keys():
        yield f"{name}: what is written is on a read-only root"
    if _ports(pod)["http"] != config["server"]["port"]:
        yield f"{name}: served on another port than is asked"
    if "admin" in config and _ports(pod)["admin"] != config["admin"]["port"]:
        yield f"{name}: admins are answered on another port than is asked"
    hook = pod["spec"]["containers"][0].get("lifecycle", {}).get("preStop", {}).get("exec", {})
    before = int("".join(filter(str.isdigit, str(hook))) or 0)
    longest = before + config["server"]["drain_delay_s"] + config["server"]["grace_s"] + 15
    if pod["spec"]["terminationGracePeriodSeconds"] < longest:
        yield f"{name}: killed while streams may still go on"


def _secrets(objects: Objects) -> Iterator[str]:
    values = [str(v) for e in _of(objects, "Secret") for v in e["stringData"].values() if len(str(v)) > 8]
    for file in _of(objects, "ConfigMap"):
        if any(value in str(file["data"]) for value in values):
            yield f"a secret in {file['metadata']['name']}"
    for name, pod in templates(objects).items():
        if any(value in str(pod) for value in values):
            yield f"a secret in {name}"
