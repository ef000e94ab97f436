"""Tokens are judged with real keys, and those come from a real server: whatever is not quite right is nobody's."""

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import openai
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from gateway.errors import ApiError
from gateway.tenants.json_web_keys import JsonWebKeys
from gateway.tenants.keyed import Keyed
from gateway.tenants.keys import KeyHash, KeyRing, digest_of, hash_of
from gateway.tenants.tokens import TokenRules, Tokens
from tests.gateway.running_server import running
from tests.gateway.scripted_engine import MODEL
from tests.gateway.tenants.people import ALICE, tenant

ISSUER, AUDIENCE = "https://login.example.com", "kvgate"
RULES = TokenRules(ISSUER, (AUDIENCE,))
RSA, OTHER = (rsa.generate_private_key(65537, 2048) for _ in range(2))
EC, ED = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()


def public(key: Any, kid: str, **more: Any) -> dict[str, Any]:
    kind = {rsa.RSAPrivateKey: RSAAlgorithm, ec.EllipticCurvePrivateKey: ECAlgorithm}
    algorithm = next((each for base, each in kind.items() if isinstance(key, base)), OKPAlgorithm)
    return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, **more}


SHARED = {"kty": "oct", "kid": "shared", "alg": "HS256", "k": base64.urlsafe_b64encode(b"x" * 32).decode()}
KEYS = [public(RSA, "rsa", alg="RS256"), public(EC, "ec"), public(ED, "ed"), public(RSA, "bare")]


def token(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "rsa", **changes: Any) -> str:
    claims = {"iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 60, "tenant": "alice", **changes}
    claims = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(claims, key, algorithm, headers={} if kid is None else {"kid": kid})


class Provider:
    """Gives out `text`, and counts who asked."""

    def __init__(self, text: bytes, status: int = 200, location: str | None = None) -> None:
        self.text, self.status, self.location = text, status, location
        self.asked = 0
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked += 1
                self.send_response(provider.status)
                if provider.location:
                    self.send_header("location", provider.location)
                self.send_header("content-length", str(len(provider.text)))
                self.end_headers()
                self.wfile.write(provider.text)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/keys"


@pytest.fixture
def provider() -> Iterator[Callable[..., Provider]]:
    made: list[Provider] = []

    def make(keys: Any = None, **more: Any) -> Provider:
        text = json.dumps({"keys": KEYS if keys is None else keys}).encode()
        made.append(Provider(more.pop("text", text), **more))
        threading.Thread(target=made[-1].server.serve_forever, daemon=True).start()
        return made[-1]

    yield make
    for each in made:
        each.server.shutdown()
        each.server.server_close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [*KEYS, SHARED]}))
    return file


async def whose(given: str | bytes, file: Path, rules: TokenRules = RULES) -> str | None:
    raw = given if isinstance(given, bytes) else given.encode()
    return await Tokens(rules, JsonWebKeys(file)).tenant_of(raw)


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [
        (RSA, "RS256", "rsa"),
        (EC, "ES256", "ec"),
        (ED, "EdDSA", "ed"),
        (RSA, "PS256", "bare"),
        (RSA, "RS512", "bare"),
    ],
)
async def test_a_token_of_the_provider_names_its_tenant(
    key: Any, algorithm: str, kid: str, file: Path
) -> None:
    assert await whose(token(key, algorithm, kid), file) == "alice"


@pytest.mark.parametrize(
    "given",
    [
        token(exp=time.time() - 60),
        token(exp=None),
        token(nbf=time.time() + 600),
        token(aud="another"),
        token(aud=None),
        token(iss="https://evil.example.com"),
        token(iss=None),
        token(tenant=None),
        token(tenant=["alice"]),
        token(kid="unknown"),
        token(kid=None),  # there are several keys
        token(OTHER),  # signed by somebody else
        token(EC, "ES256", "rsa"),  # another key's id
        token(RSA, "RS512"),  # the key is for RS256
        token(RSA, "PS256"),
        token(OTHER, "RS256", "ec"),
        "a.b.c",
        "..",
        b"\xff.\xfe.\xfd",
    ],
)
async def test_what_is_not_quite_right_is_nobody_s(given: str | bytes, file: Path) -> None:
    assert await whose(given, file) is None


def forged(header: dict[str, Any], secret: bytes | None) -> str:
    """Signed with HMAC, or not at all: libraries refuse to make this."""
    claims = {"iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 60, "tenant": "alice"}
    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in (header, claims)]
    text = b".".join(parts)
    mac = b"" if secret is None else hmac.new(secret, text, hashlib.sha256).digest()
    return (text + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")).decode()


def pem() -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.mark.parametrize("algorithm", ["none", "None", "HS256", "hs256", "HS512", ""])
@pytest.mark.parametrize("kid", ["rsa", "bare", "shared"])
async def test_the_public_key_signs_nothing(algorithm: str, kid: str, file: Path) -> None:
    for secret in (None, pem(), b"x" * 32, KEYS[0]["n"].encode()):
        assert await whose(forged({"alg": algorithm, "kid": kid, "typ": "JWT"}, secret), file) is None


async def test_a_key_in_the_token_itself_counts_nothing(file: Path) -> None:
    claims = {"iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 60, "tenant": "alice"}
    for more in (
        {"jwk": public(OTHER, "rsa")},
        {"jku": "http://127.0.0.1:1/"},
        {"x5u": "http://127.0.0.1:1/"},
    ):
        assert await whose(jwt.encode(claims, OTHER, "RS256", headers={"kid": "rsa", **more}), file) is None


async def test_a_claim_may_be_mapped_and_only_what_is_mapped_counts(file: Path) -> None:
    rules = TokenRules(ISSUER, (AUDIENCE, "more"), claim="org", tenants={"org-7": "bob"})
    assert await whose(token(org="org-7", aud=["x", "more"]), file, rules) == "bob"
    assert await whose(token(org="bob"), file, rules) is None
    assert await whose(token(), file, rules) is None


async def test_only_the_algorithms_of_the_operator(file: Path) -> None:
    rules = TokenRules(ISSUER, (AUDIENCE,), algorithms=("ES256",))
    assert await whose(token(), file, rules) is None
    assert await whose(token(EC, "ES256", "ec"), file, rules) == "alice"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_keys_are_rotated_without_a_restart(provider: Callable[..., Provider]) -> None:
    source, clock = provider([public(RSA, "old")]), Clock()
    tokens = Tokens(RULES, JsonWebKeys(source.url, clock))
    old, new = token(kid="old"), token(OTHER, kid="new")
    assert await tokens.tenant_of(old.encode()) == "alice"
    source.text = json.dumps({"keys": [public(OTHER, "new")]}).encode()
    clock.now = 5.0
    assert await tokens.tenant_of(new.encode()) is None  # asked a moment ago
    clock.now = 11.0
    assert await tokens.tenant_of(new.encode()) == "alice"
    assert await tokens.tenant_of(old.encode()) is None
    assert source.asked == 2


async def test_many_tokens_with_unknown_keys_ask_once(provider: Callable[..., Provider]) -> None:
    source, clock = provider(), Clock()
    tokens = Tokens(RULES, JsonWebKeys(source.url, clock))
    for number in range(50):
        assert await tokens.tenant_of(token(kid=f"unknown {number}").encode()) is None
    assert source.asked == 1


async def test_keys_that_were_found_count_while_the_provider_is_away(
    provider: Callable[..., Provider],
) -> None:
    source, clock = provider(), Clock()
    tokens = Tokens(RULES, JsonWebKeys(source.url, clock))
    assert await tokens.tenant_of(token().encode()) == "alice"
    source.status = 500
    clock.now = 3600.0
    assert await tokens.tenant_of(token().encode()) == "alice"
    clock.now = 90_000.0
    with pytest.raises(ApiError) as refused:
        await tokens.tenant_of(token().encode())
    assert (refused.value.status, refused.value.code) == (503, "authentication_unavailable")


@pytest.mark.parametrize("text", [b"", b"[]", b'{"keys": {}}', b"x" * (1 << 21)])
async def test_what_is_no_set_of_keys_proves_nothing(provider: Callable[..., Provider], text: bytes) -> None:
    with pytest.raises(ApiError):
        await Tokens(RULES, JsonWebKeys(provider(text=text).url)).tenant_of(token().encode())


async def test_redirects_are_not_followed(provider: Callable[..., Provider]) -> None:
    elsewhere = provider()
    source = provider(text=b"", status=302, location=elsewhere.url)
    with pytest.raises(ApiError):
        await Tokens(RULES, JsonWebKeys(source.url)).tenant_of(token().encode())
    assert elsewhere.asked == 0


def test_over_a_real_server_tokens_and_keys_open_the_same_door(provider: Callable[..., Provider]) -> None:
    ring = KeyRing([KeyHash("alice", digest_of(hash_of(ALICE)))])
    people = [tenant("alice"), tenant("bob", models=())]
    given = Keyed(people, [ring], Tokens(RULES, JsonWebKeys(provider().url)))
    with running(tenants=given) as server:
        for key in (ALICE, token()):
            assert [each.id for each in server.sdk_of(key).models.list()] == [MODEL]
        assert not list(server.sdk_of(token(tenant="bob")).models.list())
        for bad in (token(tenant="nobody"), token(OTHER), token(exp=1)):
            with pytest.raises(openai.AuthenticationError) as refused:
                server.sdk_of(bad).models.list()
            assert refused.value.code == "invalid_api_key"
            assert bad not in str(refused.value)
