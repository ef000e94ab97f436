"""Tenants over llama.cpp's own server, which keeps nobody apart: what reaches it, and why that is refused."""

from collections.abc import Iterator

import openai
import pytest

from engine_adapters.remote.llama_cpp import LlamaCppEngine
from gateway.relay.guard import Guard
from gateway.relay.remote import Remote
from gateway.replicas.pool import EnginePool
from tests.gateway.relay.serving import Relaying, relaying
from tests.gateway.tenants.people import ALICE, BOB, three
from tests.llama_cpp_server import LlamaCppServer

MODEL = "smollm2"


def serving(server: LlamaCppServer, guard: Guard) -> Iterator[Relaying]:
    remote = Remote(LlamaCppEngine("llama", server.url), {MODEL: "default"})
    with relaying([], pools=[EnginePool("llama", [remote], guard=guard)], tenants=three()) as it:
        yield it


@pytest.fixture(scope="module")
def shared(llama_cpp: LlamaCppServer) -> Iterator[Relaying]:
    yield from serving(llama_cpp, Guard())


@pytest.fixture(scope="module")
def apart(llama_cpp: LlamaCppServer) -> Iterator[Relaying]:
    yield from serving(llama_cpp, Guard(apart=True))


def ask(gateway: Relaying, key: str, text: str, **more: object) -> int:
    """Tokens that were reused."""
    messages = [{"role": "user", "content": text}]
    create = gateway.sdk_of(key).chat.completions.create
    return create(
        model=MODEL, messages=messages, max_tokens=1, extra_body=more
    ).usage.prompt_tokens_details.cached_tokens


def test_where_sharing_is_meant_it_answers_and_salts_are_not_seen(shared: Relaying) -> None:
    text = "Of shared things, and of how many there are. " * 15
    ask(shared, ALICE, text, cache_salt="own", extra_key="own")
    assert ask(shared, BOB, text, cache_salt="another") > 100


@pytest.mark.parametrize("slot", [0, 1])
def test_no_tenant_chooses_a_slot(shared: Relaying, slot: int) -> None:
    with pytest.raises(openai.BadRequestError, match="id_slot") as refused:
        ask(shared, ALICE, "Hello", id_slot=slot)
    assert refused.value.code == "field_not_allowed"


def test_where_tenants_are_to_be_kept_apart_nothing_reaches_it(apart: Relaying) -> None:
    with pytest.raises(openai.NotFoundError, match="takes none on /v1/chat/completions"):
        ask(apart, ALICE, "Hello")
