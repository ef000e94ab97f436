"""Other names for models, on the wire."""

import json

import pytest

from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from gateway.aliases import Alias
from gateway.relay.remote import Remote
from gateway.served import Backend
from gateway.settings import GatewaySettings
from gateway.tenants.behalf import Headers
from gateway.tenants.tenant import Tenant
from tests.gateway.relay.fake_engine import fake_engine, whole
from tests.gateway.relay.serving import Relaying, relaying
from tests.gateway.scripted_engine import CONTEXT, BytePrompts, ScriptedEngine
from tests.gateway.scripted_engine import MODEL as SCRIPTED

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "Hi"}]
ALIASES = {
    "gpt-4o": Alias("fake", "named"),
    "here": Alias("embedded", SCRIPTED),
    "gone": Alias("fake", "no more"),
}


class Some:
    """Everybody is a tenant that may use one alias, and nothing by its own name."""

    async def authenticate(self, headers: Headers) -> Tenant:
        return Tenant("some", "some", models=frozenset({"gpt-4o"}))

    def tenants(self) -> tuple[Tenant, ...]:
        return ()


@pytest.fixture
def both():
    with fake_engine(lambda connection, _: connection.reply(whole(0))) as engine:
        remote = Remote(OpenAICompatibleEngine("fake", engine.url, ("own",)), {"named": "own"})
        backend = Backend(ScriptedEngine(), BytePrompts())
        with relaying([remote], GatewaySettings(aliases=ALIASES), backend) as gateway:
            yield gateway, engine


def test_a_tenant_may_use_the_names_that_it_was_given() -> None:
    with fake_engine(lambda connection, _: connection.reply(whole(0))) as engine:
        remote = Remote(OpenAICompatibleEngine("fake", engine.url, ("own",)), {"named": "own"})
        with relaying([remote], GatewaySettings(aliases=ALIASES), tenants=Some()) as gateway:
            assert post(gateway, "gpt-4o").status_code == 200
            assert post(gateway, "named").status_code == 404
            assert [each["id"] for each in gateway.http.get("/v1/models").json()["data"]] == ["gpt-4o"]


def post(gateway: Relaying, model: str):
    return gateway.http.post(CHAT, json={"model": model, "messages": MESSAGES})


def test_an_engine_gets_its_own_name_and_its_answer_passes(both) -> None:
    gateway, engine = both
    answer = post(gateway, "gpt-4o")
    assert answer.content == whole(0)
    assert engine.asked[0].body["model"] == "own"
    assert gateway.rows.one().model == "named"


def test_an_alias_leads_to_the_engine_in_this_process_too(both) -> None:
    gateway, _ = both
    assert post(gateway, "here").json()["model"] == SCRIPTED


def test_only_the_name_is_changed_on_the_way(both) -> None:
    gateway, engine = both
    raw = b'{"model" : "gpt-4o", "messages":[{"role":"user","content":"Hi"}], "x": 1E2, "seed": 1e400}'
    gateway.http.post(CHAT, content=raw.replace(b', "seed": 1e400', b""), headers={"x-kvgate-policy": "off"})
    assert engine.asked[0].raw == raw.replace(b'"gpt-4o"', b'"own"').replace(b', "seed": 1e400', b"")


def test_an_alias_whose_model_is_gone_is_told(both) -> None:
    gateway, _ = both
    answer = post(gateway, "gone")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    assert "'no more' of the engine fake" in answer.json()["error"]["message"]


def test_aliases_are_listed_where_their_models_are_there(both) -> None:
    gateway, _ = both
    listed = {each["id"]: each for each in gateway.http.get("/v1/models").json()["data"]}
    assert listed.keys() == {"named", "gpt-4o", "here", SCRIPTED}
    assert listed["here"]["max_model_len"] == CONTEXT
    assert gateway.http.get("/v1/models/gpt-4o").json()["id"] == "gpt-4o"
    assert gateway.http.get("/v1/models/gone").status_code == 404
    assert json.loads(gateway.http.get("/v1/models").content)["object"] == "list"
