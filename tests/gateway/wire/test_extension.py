"""The `kvgate` field of a body: checked, handed to the engine as wishes, and cut out of what goes further."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.base import Retention
from gateway.errors import ApiError
from gateway.transport.incoming import Incoming
from gateway.wire.extension import without_extension
from tests.gateway.running_server import Running
from tests.gateway.scripted_engine import MODEL
from tests.gateway.surface.test_errors import check_shape

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"model": MODEL, "messages": [{"role": "user", "content": "Hé"}]},
    COMPLETIONS: {"model": MODEL, "prompt": ["ab", "c"]},
}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    ("field", "wishes"),
    [
        ({"pin_ttl": 30, "priority": 1, "ttl": 2.5}, Retention(30.0, 2.5, 1)),
        ({"pin_ttl": 600}, Retention(600.0)),
        ({"priority": -1}, Retention(priority=-1)),
        ({"ttl": 0}, Retention(ttl_s=0.0)),
        ({}, None),
        ({"pin_ttl": None, "priority": 0}, None),
        (None, None),
    ],
)
def test_wishes_reach_the_engine_and_the_field_goes_no_further(
    server: Running, path: str, field: dict[str, Any] | None, wishes: Retention | None
) -> None:
    assert server.http.post(path, json=BODIES[path] | {"kvgate": field}).status_code == 200
    assert server.engine.requests
    for request in server.engine.requests:
        assert request.retention == wishes
        assert dict(request.body) == BODIES[path]
        assert request.raw is None or orjson.loads(request.raw) == BODIES[path]


def test_without_the_field_there_are_no_wishes(server: Running) -> None:
    assert server.http.post(CHAT, json=BODIES[CHAT]).status_code == 200
    assert server.engine.requests[0].retention is None


def test_the_openai_sdk_sends_it_as_an_extra(server: Running) -> None:
    server.sdk.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "hi"}],
        extra_body={"kvgate": {"pin_ttl": 12.5, "priority": 1}},
    )
    assert server.engine.requests[0].retention == Retention(12.5, None, 1)
    assert "kvgate" not in server.engine.requests[0].body


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    ("field", "param"),
    [
        (5, "kvgate"),
        ([], "kvgate"),
        ("pin", "kvgate"),
        ({"pin_ttl": -1}, "kvgate.pin_ttl"),
        ({"pin_ttl": 600.5}, "kvgate.pin_ttl"),
        ({"pin_ttl": "60"}, "kvgate.pin_ttl"),
        ({"pin_ttl": True}, "kvgate.pin_ttl"),
        ({"ttl": -0.1}, "kvgate.ttl"),
        ({"priority": 2}, "kvgate.priority"),
        ({"priority": -2}, "kvgate.priority"),
        ({"priority": 0.5}, "kvgate.priority"),
        ({"priority": "high"}, "kvgate.priority"),
        ({"pin_tll": 5}, "kvgate.pin_tll"),
    ],
)
def test_what_is_wrong_with_it_is_named(server: Running, path: str, field: Any, param: str) -> None:
    response = server.http.post(path, json=BODIES[path] | {"kvgate": field})
    assert response.status_code == 400
    assert check_shape(response)["param"] == param
    assert not server.engine.requests


def test_an_operator_may_allow_longer_pins(serve_with) -> None:
    server = serve_with(longest_pin_s=7200.0)
    body = BODIES[CHAT] | {"kvgate": {"pin_ttl": 7000}}
    assert server.http.post(CHAT, json=body).status_code == 200
    assert server.engine.requests[0].retention == Retention(7000.0)


@pytest.mark.parametrize(
    ("raw", "left"),
    [
        (b'{"kvgate": {"a": 1}, "x": 1.50}', b'{ "x": 1.50}'),
        (b'{"x": 1E2 ,\n "kvgate" : {"a": [1, {"b": "}"}]} }', b'{"x": 1E2 }'),
        (b'{"x": 1,"kvgate":{},"y":-0}', b'{"x": 1,"y":-0}'),
        (b'{"kvgate":null}', b"{}"),
        (b'{"user":"kvgate","kvgate":{}}', b'{"user":"kvgate"}'),
        (b'{"m":{"kvgate":{}},"kvgate":{"p":1}}', b'{"m":{"kvgate":{}}}'),
        (b'{"t":"\\"kvgate\\":{}","kvgate":{}}', b'{"t":"\\"kvgate\\":{}"}'),
        ('{"t":"é\u2028","kvgate":{"ü":"é"},"z":"é"}'.encode(), '{"t":"é\u2028","z":"é"}'.encode()),
    ],
)
def test_every_other_byte_stays_as_it_came(raw: bytes, left: bytes) -> None:
    cut = without_extension(Incoming(orjson.loads(raw), raw))
    assert cut.raw == left
    assert cut.body == orjson.loads(left)


@pytest.mark.parametrize("raw", [b'{"kvg\\u0061te":{}}', b'{"kvgate":1,"kvgate":{}}'])
def test_a_field_that_cannot_be_cut_out_is_refused(raw: bytes) -> None:
    with pytest.raises(ApiError, match="spelled plainly"):
        without_extension(Incoming(orjson.loads(raw), raw))


NAMES = st.sampled_from(["kvgate", "a", "b", '"kvgate"', "é"])
VALUES = st.recursive(
    st.none() | st.integers(-5, 5) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(NAMES, VALUES, max_size=4), VALUES, st.integers(0, 4), st.sampled_from([None, 1]))
def test_whatever_else_is_in_a_body_stays(
    others: dict[str, Any], field: Any, place: int, indent: int | None
) -> None:
    others.pop("kvgate", None)
    members = list(others.items())
    members.insert(place, ("kvgate", field))
    raw = json.dumps(dict(members), indent=indent, ensure_ascii=bool(place % 2)).encode()
    cut = without_extension(Incoming(orjson.loads(raw), raw))
    assert orjson.loads(cut.raw) == cut.body == others
