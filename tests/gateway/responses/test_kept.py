"""Responses that engines keep: found by their tenant, at the replica that has them, and by nobody else."""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import httpx
import pytest

from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from engine_adapters.remote.vllm import VllmEngine
from gateway.relay.remote import Remote
from gateway.replicas.pool import EnginePool
from gateway.tenants.behalf import Headers
from gateway.tenants.tenant import Tenant
from tests.gateway.relay.fake_engine import MODEL, Asked, Connection, FakeEngine, event, fake_engine
from tests.gateway.relay.serving import Relaying, relaying
from tests.waiting import wait_until

KEPT = "/v1/responses"


class ByHeader:
    """A tenant for each word in `authorization`."""

    async def authenticate(self, headers: Headers) -> Tenant:
        name = dict(headers).get(b"authorization", b"one").decode()
        return Tenant(name, name)


def keeping(name: str):
    """An engine that gives ids and keeps what it answered."""
    kept: list[str] = []

    def script(connection: Connection, asked: Asked) -> None:
        if asked.path == "/v1/responses":
            kept.append(f"resp_{name}{len(kept)}")
            response = {"id": kept[-1], "object": "response", "output": [], "status": "completed"}
            if not asked.body.get("stream"):
                connection.reply(json.dumps(response).encode())
                return
            connection.stream()
            connection.chunk(event({"type": "response.created", "response": response}))
            connection.chunk(event({"type": "response.completed", "response": response}))
            connection.end()
            return
        there = any(f"/{name}" in asked.path for name in kept)
        status = "200 OK" if there else "404 Not Found"
        body = {"seen": asked.path} if there else {"error": {"message": "unknown response"}}
        connection.reply(json.dumps(body).encode(), status)

    return script


@dataclass(slots=True)
class Fleet:
    gateway: Relaying
    engines: dict[str, FakeEngine]

    def create(self, tenant: str = "one", **fields) -> httpx.Response:
        body = {"model": MODEL, "input": "Hi", **fields}
        return self.gateway.http.post(KEPT, json=body, headers={"authorization": tenant})

    def ask(self, method: str, path: str, tenant: str = "one") -> httpx.Response:
        return self.gateway.http.request(method, f"{KEPT}/{path}", headers={"authorization": tenant})

    def paths(self, name: str) -> list[str]:
        return [asked.path for asked in self.engines[name].asked]


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    with ExitStack() as stack:
        engines = {name: stack.enter_context(fake_engine(keeping(name))) for name in "ab"}
        replicas = [
            Remote(OpenAICompatibleEngine("fleet", engine.url), replica=name)
            for name, engine in engines.items()
        ]
        pool = EnginePool("fleet", replicas)
        yield Fleet(stack.enter_context(relaying([], pools=[pool], tenants=ByHeader())), engines)


@pytest.mark.parametrize("stream", [False, True])
def test_whatever_names_a_response_goes_to_the_replica_that_keeps_it(fleet: Fleet, stream: bool) -> None:
    ids = []
    for _ in range(4):
        (name,) = set(re.findall(r"resp_[ab][0-9]+", fleet.create(stream=stream).text))
        ids.append(name)
    assert {name[5] for name in ids} == {"a", "b"}
    for name in ids:
        assert fleet.ask("GET", name).json() == {"seen": f"/v1/responses/{name}"}
        assert fleet.ask("POST", f"{name}/cancel").status_code == 200
        items = fleet.ask("GET", f"{name}/input_items?limit=3&include%5B%5D=a")
        assert items.json() == {"seen": f"/v1/responses/{name}/input_items?limit=3&include%5B%5D=a"}
        assert fleet.create(previous_response_id=name).status_code == 200
        assert fleet.paths(name[5])[-1] == "/v1/responses"
        assert fleet.engines[name[5]].asked[-1].body["previous_response_id"] == name


def test_what_is_anothers_or_never_was_is_not_there_and_no_engine_is_asked(fleet: Fleet) -> None:
    name = fleet.create().json()["id"]
    before = len(fleet.paths("a") + fleet.paths("b"))
    for tenant, wanted in (("two", name), ("one", "resp_a999"), ("one", "..%2Fmodels"), ("one", "x" * 300)):
        for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")):
            answer = fleet.ask(method, wanted + path, tenant)
            assert answer.status_code == 404
            assert answer.json()["error"]["type"] == "invalid_request_error"
        answer = fleet.create(tenant, previous_response_id=wanted)
        assert answer.status_code == 404
        assert answer.json()["error"]["param"] == "previous_response_id"
        assert answer.json()["error"]["code"] == "previous_response_not_found"
    assert len(fleet.paths("a") + fleet.paths("b")) == before


def test_a_deleted_response_is_gone(fleet: Fleet) -> None:
    name = fleet.create().json()["id"]
    assert fleet.ask("DELETE", name).status_code == 200
    assert fleet.ask("GET", name).status_code == 404
    assert fleet.paths(name[5])[-1] == f"/v1/responses/{name}"


def test_what_is_not_stored_is_not_remembered(fleet: Fleet) -> None:
    name = fleet.create(store=False).json()["id"]
    assert fleet.ask("GET", name).status_code == 404


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"conversation": "conv_1"}, "conversation"),
        (
            {"input": [{"role": "user", "content": "Hi"}, {"type": "item_reference", "id": "msg_1"}]},
            "input[1].id",
        ),
    ],
)
def test_tenants_cannot_name_what_is_bound_to_none_of_them(fleet: Fleet, fields, param: str) -> None:
    answer = fleet.create(**fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (404, param)


def test_a_request_about_a_response_leaves_no_row(fleet: Fleet) -> None:
    name = fleet.create().json()["id"]
    fleet.ask("GET", name)
    assert fleet.gateway.rows.one().route == "responses"


def test_a_replica_that_has_gone_is_told_of(fleet: Fleet) -> None:
    name = fleet.create().json()["id"]
    (pool,) = fleet.gateway.live.now.pools
    (keeper,) = (each for each in pool.members if each.id == name[5])
    fleet.gateway.loop().call_soon_threadsafe(pool._retire, keeper)
    wait_until(lambda: len(pool.replicas) == 1, "it has left")
    for answer in (fleet.ask("GET", name), fleet.create(previous_response_id=name)):
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_not_ready")


def test_an_engine_that_keeps_nothing_by_this_route_is_named() -> None:
    with fake_engine(keeping("v")) as engine:
        remote = Remote(VllmEngine("v", engine.url, (MODEL,), probe=False), {MODEL: MODEL})
        with relaying([remote]) as gateway:
            name = gateway.http.post(KEPT, json={"model": MODEL, "input": "Hi"}).json()["id"]
            answer = gateway.http.delete(f"{KEPT}/{name}")
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unsupported_route")
            assert "The engine v has no DELETE /v1/responses/{id}" in answer.json()["error"]["message"]
            assert gateway.http.get(f"{KEPT}/{name}").status_code == 200


def test_the_model_need_not_be_named_where_there_is_one_engine(fleet: Fleet) -> None:
    answer = fleet.gateway.http.post(KEPT, json={"input": "Hi"}, headers={"authorization": "one"})
    assert answer.status_code == 200
    asked = (fleet.engines["a"].asked + fleet.engines["b"].asked)[0]
    assert asked.body == {"input": "Hi"}
