"""Which endpoints of which slices are replicas."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.replicas.address import ReplicaAddress
from gateway.replicas.discovery.kubernetes.slices import ServicePort, replicas_in
from tests.gateway.replicas.discovery.kubernetes_api import endpoint, slice_of


def test_a_pod_with_addresses_of_both_families_is_one_replica() -> None:
    slices = [
        slice_of("six", endpoint("fd00::1", "pod-1"), endpoint("fd00::2", "pod-2"), kind="IPv6"),
        slice_of("four", endpoint("10.0.0.1", "pod-1")),
    ]
    assert replicas_in(slices, ServicePort()) == [
        ReplicaAddress("pod-1", "http://10.0.0.1:30000"),
        ReplicaAddress("pod-2", "http://[fd00::2]:30000"),
    ]


@pytest.mark.parametrize(
    ("wanted", "found"), [(None, []), ("http", ["10.0.0.1:30000"]), (8080, ["10.0.0.1:8080"]), ("grpc", [])]
)
def test_a_port_is_a_number_a_name_or_the_only_one(wanted: int | str | None, found: list[str]) -> None:
    two = slice_of("a", endpoint("10.0.0.1"))
    two["ports"].append({"name": "metrics", "port": 9090, "protocol": "TCP"})
    assert [each.name for each in replicas_in([two], ServicePort(wanted))] == found


def test_names_that_are_no_addresses_are_left_out() -> None:
    slices = [slice_of("a", endpoint("metadata.internal"), kind="FQDN"), slice_of("b", endpoint("nonsense"))]
    assert replicas_in(slices, ServicePort()) == []


@pytest.mark.parametrize("port", [0, -1, 65536, True, "30000", 1.5, None])
def test_a_port_that_is_none_makes_no_replica(port: object) -> None:
    odd = slice_of("a", endpoint("10.0.0.1"))
    odd["ports"][0]["port"] = port
    assert replicas_in([odd], ServicePort("http")) == replicas_in([odd], ServicePort()) == []


_odd = st.sampled_from(
    [None, True, 7, "x", [], [None], {}, [{}], [{"addresses": None}], [{"addresses": [None]}], [{"addresses": [1]}],
     [{"conditions": [], "addresses": ["10.0.0.7"], "targetRef": []}], [{"name": "http", "port": "x"}]]
)  # fmt: skip


@given(st.lists(st.dictionaries(st.sampled_from(["addressType", "endpoints", "ports"]), _odd), max_size=3))
def test_whatever_a_slice_holds_the_others_count(odd: list[dict[str, Any]]) -> None:
    for each in odd:
        if each.get("addressType") not in ("IPv4", "IPv6"):
            each["addressType"] = "IPv4"
    good = slice_of("good", endpoint("10.0.0.1", "pod-1"))
    assert ReplicaAddress("pod-1", "http://10.0.0.1:30000") in replicas_in([*odd, good], ServicePort("http"))
