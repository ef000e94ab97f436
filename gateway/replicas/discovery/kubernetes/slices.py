"""From EndpointSlices (discovery.k8s.io/v1) to replicas: those that are ready, each once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Literal

from gateway.replicas.address import ReplicaAddress


@dataclass(frozen=True, slots=True)
class ServicePort:
    """Which of a Service's ports engines listen on."""

    port: int | str | None = None  # a number of the pods, or the name of a port; None: there is only one
    scheme: Literal["http", "https"] = "http"


def replicas_in(slices: Iterable[Mapping[str, Any]], wanted: ServicePort) -> list[ReplicaAddress]:
    """Ready endpoints of all slices, in the order of their names. What is not as it should be is left out.

    An endpoint whose readiness is not said counts as ready, as the API has it; one that ends is never ready. A pod
    with addresses of both families is one replica, at its IPv4 address.
    """
    found: dict[str, ReplicaAddress] = {}
    for kind in ("IPv4", "IPv6"):
        for each in slices_of(slices, kind):
            port = _port(each, wanted.port)
            if port is None:
                continue
            for endpoint in _mappings(each.get("endpoints")):
                replica = _replica(endpoint, port, wanted.scheme)
                if replica is not None:
                    found.setdefault(replica.name, replica)
    return [found[name] for name in sorted(found)]


def slices_of(slices: Iterable[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    """Slices of one kind of address."""
    return [each for each in slices if each.get("addressType") == kind]


def _replica(endpoint: Mapping[str, Any], port: int, scheme: str) -> ReplicaAddress | None:
    conditions = endpoint.get("conditions")
    if isinstance(conditions, Mapping) and (
        conditions.get("ready") is False or conditions.get("terminating") is True
    ):
        return None
    addresses = endpoint.get("addresses")
    if not isinstance(addresses, list) or not addresses or not isinstance(addresses[0], str):
        return None
    try:
        address = ip_address(addresses[0])
    except ValueError:
        return None
    host = f"[{address}]" if address.version == 6 else str(address)
    target = endpoint.get("targetRef")
    name = target.get("name") if isinstance(target, Mapping) and target.get("kind") == "Pod" else None
    return ReplicaAddress(
        name if isinstance(name, str) and name else f"{host}:{port}", f"{scheme}://{host}:{port}"
    )


def _port(each: Mapping[str, Any], wanted: int | str | None) -> int | None:
    if isinstance(wanted, int):
        return wanted
    ports = _mappings(each.get("ports"))
    tcp = [port for port in ports if port.get("protocol", "TCP") == "TCP"]
    if wanted is not None:
        tcp = [port for port in tcp if port.get("name") == wanted]
    number = tcp[0].get("port") if len(tcp) == 1 else None
    return number if type(number) is int and 0 < number < 65536 else None


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
