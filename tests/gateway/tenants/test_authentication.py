"""Who has no key gets nothing; who has one gets what its tenant may have. Over real servers, with the real SDK."""

import socket
from collections.abc import Iterator

import httpx
import openai
import pytest

from engine_adapters.errors import EngineNotReadyError
from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from gateway.relay.remote import Remote
from gateway.replicas.pool import EnginePool
from gateway.served import Served
from gateway.tenants.credentials import LONGEST
from gateway.tenants.tenant import Tenant
from tests.gateway.relay.serving import Rows
from tests.gateway.running_server import Running, running
from tests.gateway.scripted_engine import MODEL
from tests.gateway.tenants.people import ALICE, BOB, three

CHAT = "/v1/chat/completions"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
POLICY = "x-kvgate-policy"


@pytest.fixture(scope="module")
def rows() -> Rows:
    return Rows()


@pytest.fixture(scope="module")
def shared(rows: Rows) -> Iterator[Running]:
    with running(ledger=rows, tenants=three(models=("other/*",), may_bypass=False)) as it:
        yield it


@pytest.fixture
def server(shared: Running, rows: Rows) -> Running:
    rows.kept.clear()
    shared.put_fresh()
    return shared


def ask(server: Running, *headers: tuple[bytes, bytes]) -> httpx.Response:
    return server.http.post(CHAT, json=BODY, headers=list(headers))


def test_a_key_opens_the_door_and_names_the_tenant_in_the_ledger(server: Running, rows: Rows) -> None:
    answer = server.sdk_of(ALICE).chat.completions.create(**BODY)
    assert answer.choices[0].message.content == "Hello world"
    assert rows.one().tenant == "alice"


def test_the_other_header_is_taken_as_well(server: Running, rows: Rows) -> None:
    assert ask(server, (b"x-api-key", ALICE.encode())).status_code == 200
    assert rows.one().tenant == "alice"


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"authorization", b"")],
        [(b"authorization", b"Bearer")],
        [(b"authorization", b"Bearer nobody")],
        [(b"authorization", ALICE.encode())],
        [(b"authorization", b"Basic " + ALICE.encode())],
        [(b"authorization", b"Bearer " + ALICE.encode() + b", Bearer " + BOB.encode())],
        [(b"authorization", b"Bearer " + ALICE.encode()), (b"authorization", b"Bearer " + BOB.encode())],
        [(b"authorization", b"Bearer " + ALICE.encode()), (b"authorization", b"Bearer " + ALICE.encode())],
        [(b"authorization", b"Bearer " + ALICE.encode()), (b"x-api-key", BOB.encode())],
        [(b"x-api-key", b""), (b"x-api-key", ALICE.encode())],
        [(b"authorization", b"Bearer " + ALICE.upper().encode())],
        [(b"authorization", b"Bearer " + ALICE[:-1].encode())],
        [(b"authorization", b"Bearer " + ALICE.encode() + b"\xc2\xa0")],
        [(b"authorization", "Bearer ключ".encode())],
        [(b"x-api-key", b"x" * (LONGEST + 1))],
        [(b"x-api-key", b"a.b.c")],
    ],
)
def test_everything_else_is_refused_in_one_form(server: Running, rows: Rows, headers: list) -> None:
    answer = ask(server, *headers)
    assert answer.status_code == 401
    error = answer.json()["error"]
    assert (error["code"], error["type"], error["param"]) == ("invalid_api_key", "authentication_error", None)
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["x-request-id"]
    assert not any(ALICE in text or BOB in text for text in (answer.text, str(answer.headers)))
    assert not server.engine.requests
    row = rows.of(answer.headers["x-request-id"])
    assert (row.tenant, row.status, row.error) == ("unknown", 401, "invalid_api_key")


def test_the_same_key_twice_in_two_headers_is_one_key(server: Running) -> None:
    given = (b"x-api-key", ALICE.encode()), (b"authorization", b"bearer " + ALICE.encode())
    assert ask(server, *given).status_code == 200


def test_a_smuggled_second_header_reaches_nobody(server: Running) -> None:
    head = (
        f"GET /v1/models HTTP/1.1\r\nhost: x\r\nAuthorization: Bearer {ALICE}\r\n"
        f"AUTHORIZATION: Bearer nobody\r\nconnection: close\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(head.encode())
        assert raw.recv(65536).startswith(b"HTTP/1.1 401")


def test_the_sdk_says_authentication_error(server: Running) -> None:
    with pytest.raises(openai.AuthenticationError) as refused:
        server.sdk_of("nobody").chat.completions.create(**BODY)
    assert refused.value.code == "invalid_api_key"


def test_a_model_that_is_not_the_tenant_s_is_one_that_does_not_exist(server: Running) -> None:
    there = server.http.post(CHAT, json=BODY, headers={"x-api-key": BOB})
    absent = server.http.post(CHAT, json={**BODY, "model": "absent"}, headers={"x-api-key": BOB})
    assert there.status_code == absent.status_code == 404
    assert there.json()["error"]["code"] == "model_not_found"
    assert there.text.replace(MODEL, "") == absent.text.replace("absent", "")
    assert not server.engine.requests


def test_a_model_that_is_not_the_tenant_s_is_neither_listed_nor_shown(server: Running) -> None:
    alice, bob = server.sdk_of(ALICE), server.sdk_of(BOB)
    assert [each.id for each in alice.models.list()] == [MODEL]
    assert list(bob.models.list()) == []
    assert alice.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        bob.models.retrieve(MODEL)


def test_lists_of_models_need_a_key_and_probes_do_not(server: Running) -> None:
    assert server.http.get("/v1/models").status_code == 401
    assert server.http.get(f"/v1/models/{MODEL}").status_code == 401
    assert server.http.get("/health").status_code == 200
    assert server.http.get("/ready").status_code == 200


def test_another_policy_is_for_tenants_that_may_ask(server: Running) -> None:
    free = server.http.post(CHAT, json=BODY, headers={"x-api-key": ALICE, POLICY: "off"})
    assert (free.status_code, free.headers["x-kvgate-canon"].split(";")[0]) == (200, "off")


def test_a_tenant_that_may_not_choose_its_policy_is_told(serve_bob: Running) -> None:
    answer = serve_bob.http.post(CHAT, json=BODY, headers={"x-api-key": BOB, POLICY: "off"})
    assert answer.status_code == 403
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("bypass_not_allowed", POLICY)
    assert serve_bob.http.post(CHAT, json=BODY, headers={"x-api-key": BOB}).status_code == 200


def test_a_tenant_s_own_policy_counts_before_the_gateway_s(serve_bob: Running) -> None:
    told = [
        serve_bob.http.post(CHAT, json=BODY, headers={"x-api-key": key}).headers["x-kvgate-canon"]
        for key in (ALICE, BOB)
    ]
    assert [each.split(";")[0] for each in told] == ["safe", "full"]


@pytest.fixture(scope="module")
def serve_bob() -> Iterator[Running]:
    with running(tenants=three(may_bypass=False, canon=("full",))) as it:
        yield it


def test_scopes_are_the_group_s_and_nobody_else_s(server: Running) -> None:
    tenants = {each.name: each for each in three().tenants()}
    scopes = {name: each.scope("m") for name, each in tenants.items()}
    assert scopes["alice"] == scopes["carl"] != scopes["bob"]
    assert len({each.salt for each in tenants.values()}) == 2
    assert not any(each.salt in scope for each in tenants.values() for scope in scopes.values())


def test_engines_that_are_not_known_yet_are_not_named_to_a_tenant() -> None:
    pool = EnginePool("blues-own", [Remote(OpenAICompatibleEngine("blues-own", "http://127.0.0.1:1"))])
    served = Served(pools=[pool], embedded=False)
    with pytest.raises(EngineNotReadyError, match="every engine"):
        served.find("m", Tenant("red", "red"))
    with pytest.raises(EngineNotReadyError, match="blues-own"):
        served.find("m")
