"""What clients may not make an engine do, whatever engine it is; and what may pass."""

from typing import Any

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from gateway.errors import ApiError
from gateway.relay.body_urls import found_in, may_fetch
from gateway.relay.client_fields import BETWEEN_TENANTS, OF_OPERATORS
from gateway.relay.guard import Guard
from gateway.relay.remote import Remote
from gateway.replicas.pool import EnginePool
from gateway.tenants.tenant import DEFAULT, Tenant
from tests.gateway.relay.fake_engine import MODEL, fake_engine, whole
from tests.gateway.relay.serving import relaying

SOMEBODY = Tenant("somebody", "somebody")
PICTURE = "data:image/png;base64,iVBORw0KGgo="


def refused(body: dict[str, Any], guard: Guard | None = None, tenant: Tenant = DEFAULT) -> str | None:
    """The param that is refused."""
    try:
        (guard or Guard()).check(body, tenant)
    except ApiError as error:
        return error.param if error.status == 400 else "not the client's fault"
    return None


def chat(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


def image(url: Any, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


@pytest.mark.parametrize("name", sorted(OF_OPERATORS))
def test_what_only_operators_may_ask_for_is_refused(name: str) -> None:
    assert refused({name: "x"}) == name
    assert refused({name: {"a": 1}}) == name
    assert refused({name: None}) is None
    assert refused({name: False}) is None
    assert refused({name: "x"}, Guard(client_fields=frozenset({name}))) is None


@pytest.mark.parametrize("name", sorted(BETWEEN_TENANTS))
def test_what_reaches_another_tenant_is_refused_where_there_are_some(name: str) -> None:
    assert refused({name: 0}, tenant=SOMEBODY) == name
    assert refused({name: 0}) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data",
        "https://example.com/cat.png",
        "file:///etc/passwd",
        "/etc/passwd",
        "cat.png",
        "iVBORw0KGgo=",
        "DATA:image/png;base64,AA==",
        " data:image/png;base64,AA==",
        "ftp://example.com/x",
        "",
        7,
        ["http://example.com"],
    ],
)
def test_nothing_is_fetched_that_a_body_names(url: Any) -> None:
    assert (
        refused(chat({"type": "text", "text": "see"}, image(url))) == "messages[0].content[1].image_url.url"
    )


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (chat({"image_url": "http://h/x"}), "messages[0].content[0].image_url"),
        (
            chat({"type": "video_url", "video_url": {"url": "http://h/x"}}),
            "messages[0].content[0].video_url.url",
        ),
        (
            chat({"type": "audio_url", "audio_url": {"url": "http://h/x"}}),
            "messages[0].content[0].audio_url.url",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://h/x"}]}]},
            "input[0].content[0].image_url",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "http://h/x"}]}]},
            "input[0].content[0].file_url",
        ),
        (
            chat({"type": "image", "source": {"type": "url", "url": "http://h/x"}}),
            "messages[0].content[0].source.url",
        ),
        (
            chat(
                {
                    "type": "tool_result",
                    "content": [{"type": "image", "source": {"type": "url", "url": "file:///x"}}],
                }
            ),
            "messages[0].content[0].content[0].source.url",
        ),
        ({"tools": [{"type": "mcp", "server_url": "http://h/x"}]}, "tools[0].server_url"),
        ({"mcp_servers": [{"type": "url", "url": "http://h/x"}]}, "mcp_servers[0].url"),
        ({"documents": [{"content": [image("http://h/x")]}]}, "documents[0].content[0].image_url.url"),
        ({"input": [{"text": "a", "image": "http://h/x"}]}, "input[0].image"),
        ({"input": {"video": "file:///x"}}, "input.video"),
        ({"documents": [{"images": ["http://h/x"]}]}, "documents[0].images"),
        ({"documents": [{"images": [{"url": "http://h/x"}]}]}, "documents[0].images[0].url"),
        (chat({"type": "image", "image": "http://h/x"}), "messages[0].content[0].image"),
        (chat({"type": "image", "image": {"url": "http://h/x"}}), "messages[0].content[0].image.url"),
        (
            chat({"type": "input_audio", "input_audio": {"url": "http://h/x"}}),
            "messages[0].content[0].input_audio.url",
        ),
        (chat({"type": "file", "file": {"url": "http://h/x"}}), "messages[0].content[0].file.url"),
    ],
)
def test_every_form_of_a_url_is_found(body: dict[str, Any], param: str) -> None:
    assert refused(body) == param
    assert refused(body, Guard(url_hosts=frozenset({"h"}))) in (None, param if "file:" in str(body) else None)


@pytest.mark.parametrize(
    "body",
    [
        chat(image(PICTURE)),
        chat({"type": "text", "text": "http://example.com/cat.png"}),
        chat({"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}),
        {"input": [{"text": "http://example.com", "image": PICTURE, "video": None}]},
        {"messages": [{"role": "assistant", "audio": {"id": "audio_1"}}]},
        {"documents": [{"title": "a page", "url": "http://example.com", "text": "of a search"}]},
        {"messages": [{"role": "user", "content": "image_url: http://example.com"}]},
        # Arguments that a model wrote, and schemas, are nobody's to fetch.
        chat({"type": "tool_use", "id": "t", "name": "f", "input": {"image_url": "http://h/x"}}),
        {"tools": [{"type": "function", "function": {"parameters": {"properties": {"image_url": {}}}}}]},
        {"tools": [{"name": "f", "input_schema": {"properties": {"image_url": {"url": "http://h"}}}}]},
        {"metadata": {"image_url": "http://example.com"}},
        {"messages": "nonsense", "input": [1, [2, None]]},
    ],
)
def test_what_nobody_fetches_passes(body: dict[str, Any]) -> None:
    assert refused(body) is None


def test_names_of_cached_media_are_the_tenants_own() -> None:
    named = chat({**image(PICTURE), "uuid": "cat"})
    hashed = chat(image(PICTURE, content_hash="ab"))
    assert refused(named) is None
    assert refused(named, tenant=SOMEBODY) == "messages[0].content[0].uuid"
    assert refused(hashed, tenant=SOMEBODY) == "messages[0].content[0].image_url.content_hash"
    assert refused(chat({"type": "image_url", "image_url": None, "uuid": "cat"}), tenant=SOMEBODY) is not None


def test_tensors_as_parts_are_refused() -> None:
    assert (
        refused(chat({"type": "image_embeds", "image_embeds": "AA=="}))
        == "messages[0].content[0].image_embeds"
    )
    assert refused(chat({"type": "prompt_embeds", "data": "AA=="})) == "messages[0].content[0].prompt_embeds"


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://images.example.com/x", True),
        ("http://images.example.com:8080/x", True),
        ("https://IMAGES.example.com/x", True),
        ("https://images.example.com./x", True),
        ("https://a.cdn.example.org/x", True),
        ("https://cdn.example.org/x", False),
        ("https://images.example.com.evil.net/x", False),
        ("https://evil.net/images.example.com", False),
        ("https://images.example.com@evil.net/x", False),
        ("https://evil.net#@images.example.com/", False),
        ("https://evil.net\\@images.example.com/", False),
        ("https://images.example.com\t.evil.net/", False),
        ("https://[::1]/x", False),
        ("https://[images.example.com/x", False),
        ("//images.example.com/x", False),
        ("https:images.example.com/x", False),
        ("https://ımages.example.com/x", False),
    ],
)
def test_only_hosts_that_the_operator_named(url: str, allowed: bool) -> None:
    assert may_fetch(url, frozenset({"images.example.com", "*.cdn.example.org"})) is allowed


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["image_url", "url", "source", "type", "content", "uuid", "x"]), inner, max_size=3
        )
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["messages", "input", "tools", "mcp_servers", "system"]), json_values))
def test_any_body_is_looked_through(body: dict[str, Any]) -> None:
    assert all(isinstance(path, str) for _, path, _ in found_in(body))


def test_over_the_wire_nothing_of_it_reaches_the_engine() -> None:
    with fake_engine(lambda connection, _: connection.reply(whole(0))) as engine:
        remote = Remote(OpenAICompatibleEngine("fake", engine.url))
        with relaying([], pools=[EnginePool("fake", [remote], guard=Guard())]) as it:
            ask = it.sdk.chat.completions.create
            for bad in (
                {"lora_path": "../x"},
                chat(image("http://127.0.0.1/x")),
                {"chat_template": "{{ 1 }}"},
            ):
                given = {"messages": [{"role": "user", "content": "hi"}], **bad}
                with pytest.raises(openai.BadRequestError) as refused_:
                    ask(model=MODEL, messages=given.pop("messages"), extra_body=given)
                assert refused_.value.code in ("field_not_allowed", "url_not_allowed", None)
            assert not engine.asked
            ask(
                model=MODEL, messages=chat(image(PICTURE))["messages"], extra_body={"unknown_field": {"a": 1}}
            )
        assert engine.asked[0].body["unknown_field"] == {"a": 1}
