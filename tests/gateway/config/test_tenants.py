"""What may stand under `tenants:`, and which mixtures of tenants are refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.config.build import authenticator_of
from gateway.config.environment import Given
from gateway.config.errors import ConfigError
from gateway.config.load import check_config
from gateway.config.schema import schema_text
from gateway.tenants.authenticator import OPEN
from gateway.tenants.keys import hash_of
from gateway.tenants.names import PATTERN, RULE
from tests.gateway.tenants.people import whose

SECRET = {"SALT": "a secret of some thirty-two bytes"}
HASH = hash_of("a key")
VLLM = {"name": "v", "kind": "vllm", "url": "http://127.0.0.1:1"}
LLAMA = {"name": "l", "kind": "llama_cpp", "url": "http://127.0.0.1:1"}
A, B = {"name": "a", "keys": [HASH]}, {"name": "b", "keys": [hash_of("another")]}


def config(tenants: list[Any], *engines: dict[str, Any], salt: bool = True, **more: Any) -> Any:
    given = {"engines": list(engines or [VLLM]), "tenants": tenants, **more}
    if salt:
        given["salt_secret"] = {"env": "SALT"}
    return check_config(Given(given))


def refusal(*args: Any, **more: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        config(*args, **more)
    return str(refused.value)


def test_without_tenants_everyone_is_one() -> None:
    assert authenticator_of(config([], salt=False), {}) is OPEN


def test_groups_have_salts_and_members_of_one_have_the_same() -> None:
    given = config([A, B, {"name": "c", "group": "shared"}, {"name": "d", "group": "shared"}])
    a, b, c, d = authenticator_of(given, SECRET).tenants()
    assert len({a.salt, b.salt, c.salt}) == 3
    assert (c.salt, c.scope("m")) == (d.salt, d.scope("m"))
    other = authenticator_of(given, {"SALT": "another secret of that length"}).tenants()
    assert not {each.salt for each in other} & {a.salt, b.salt, c.salt}
    assert not {each.scope("m") for each in other} & {each.scope("m") for each in (a, b, c)}


def test_keys_stand_in_both_places(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"b {hash_of('from the file')}\n")
    given = config([A, {"name": "b"}], keys_file=str(file))
    sources = authenticator_of(given, SECRET)._keys
    assert [whose(sources, key) for key in (b"a key", b"from the file", b"x")] == ["a", "b", None]


async def test_a_key_may_be_an_admins_and_the_tenants_other_keys_are_not(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"a {hash_of('from the file')} admin\n")
    keys = [HASH, {"sha256": hash_of("root"), "admin": True}]
    who = authenticator_of(config([{"name": "a", "keys": keys}], keys_file=str(file)), SECRET)
    for key, admin in ((b"a key", False), (b"root", True), (b"from the file", True)):
        found = await who.authenticate([(b"authorization", b"Bearer " + key)])
        assert (found.name, found.admin) == ("a", admin)
        assert found.scope("m") == who.tenants()[0].scope("m")
    assert not any(each.admin for each in who.tenants())


def test_a_key_has_an_end_also_as_yaml_writes_dates() -> None:
    import datetime

    end = datetime.date(2020, 1, 31)
    given = config([{"name": "a", "keys": [{"sha256": HASH, "expires": end}]}])
    assert whose(authenticator_of(given, SECRET)._keys, b"a key") is None


def test_a_key_in_the_clear_is_refused_and_not_repeated() -> None:
    said = refusal([{"name": "a", "keys": ["kvg_the-key-itself"]}])
    assert said.startswith("tenants[0].keys[0]: a key stands here as its SHA-256")
    assert "itself" not in said


@pytest.mark.parametrize("name", ["", "a/b", "a b", "a@b", ".a", "a\n", "a\0", "x" * 65])
def test_odd_names_are_refused_with_what_is_allowed(name: str) -> None:
    assert refusal([{"name": name, "keys": [HASH]}]) == f"tenants[0].name: {RULE}"
    assert refusal([{"name": "a", "group": name, "keys": [HASH]}]) == f"tenants[0].group: {RULE}"


@pytest.mark.parametrize("name", ["ä", "a\u0308", "Ж", "ａ", "团队", "x\u200b", "1²"])
def test_letters_beyond_ascii_are_refused_in_words(name: str) -> None:
    said = refusal([{"name": name, "keys": [HASH]}])
    assert said == f"tenants[0].name: {RULE}; letters beyond ASCII are in none"


def test_the_name_of_requests_without_a_key_is_no_tenant_s() -> None:
    said = refusal([{"name": "unknown", "keys": [HASH]}])
    assert said == "tenants[0].name: this name stands for requests without a valid key"


def test_an_editor_knows_what_a_name_may_be() -> None:
    schema = json.loads(schema_text())
    assert schema["$defs"]["TenantConfig"]["properties"]["name"]["pattern"] == PATTERN


@pytest.mark.parametrize(
    ("tenants", "said"),
    [
        ([A, A], "tenants: two tenants are called 'a'"),
        ([A, {"name": "b", "keys": [HASH]}], "tenants: one key stands there twice"),
        ([A, {"name": "b", "group": "a"}], "tenants: the group 'a' has the name of a tenant"),
        ([{"name": "a"}], "tenants: none of them has a key"),
        ([{**A, "canon_policy": "fool"}], "tenants[0].canon_policy: "),
        ([{**A, "keys": [{"sha256": HASH, "expires": "soon"}]}], "tenants[0].keys[0].expires: a key's end"),
    ],
)
def test_what_cannot_be_told_apart_is_refused(tenants: list[Any], said: str) -> None:
    assert refusal(tenants).startswith(said)


def test_several_groups_need_a_secret() -> None:
    assert refusal([A, B], salt=False).startswith("salt_secret: missing")
    assert config([A], salt=False).tenants
    one = [{**A, "group": "g"}, {**B, "group": "g"}]
    assert config(one, salt=False).tenants


@pytest.mark.parametrize("secret", ["too few", ""])
def test_a_secret_that_is_none_is_refused_and_not_repeated(secret: str) -> None:
    with pytest.raises(ConfigError, match=r"^salt_secret") as refused:
        authenticator_of(config([A]), {"SALT": secret})
    assert not secret or secret not in str(refused.value)


def test_a_file_of_keys_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^keys_file: .*cannot be read"):
        authenticator_of(config([A], keys_file=str(tmp_path / "none")), SECRET)


@pytest.mark.parametrize("kind", ["llama_cpp", "openai", "anthropic"])
def test_groups_on_an_engine_without_salts_are_refused(kind: str) -> None:
    engine = {**LLAMA, "kind": kind}
    said = refusal([A, B], VLLM, engine)
    assert said.startswith(f"engines[1]: a, b may all use l, and {kind} takes no salt")
    assert config([A, B], {**engine, "shared_cache": True}).tenants
    assert config([{**A, "group": "g"}, {**B, "group": "g"}], engine).tenants


def test_groups_with_engines_of_their_own_are_kept_apart() -> None:
    first, second = {**LLAMA, "models": ["for-a"]}, {**LLAMA, "name": "m", "models": ["for-b"]}
    tenants = [{**A, "models": ["*-a"]}, {**B, "models": ["for-b"]}]
    assert config(tenants, first, second).tenants
    assert refusal([{**A, "models": ["for-*"]}, tenants[1]], first, second).startswith("engines[1]: a, b")
    unnamed = {key: value for key, value in first.items() if key != "models"}
    assert refusal(tenants, unnamed, second).startswith("engines[0]: a, b")


TOKENS = {"issuer": "https://login.example.com", "audience": "kvgate", "jwks_file": "/keys.json"}


def test_tokens_may_be_the_only_proof() -> None:
    assert authenticator_of(config([{"name": "a"}], jwt=TOKENS), SECRET)._tokens is not None


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"jwks_url": "https://login.example.com/keys"}, "jwt: write either jwks_url or jwks_file"),
        ({"algorithms": ["HS256"]}, "jwt.algorithms[0]: "),
        ({"algorithms": ["none"]}, "jwt.algorithms[0]: "),
        ({"tenants": {"org": "nobody"}}, "jwt.tenants: there is no tenant 'nobody'"),
        ({"jwks_file": None, "jwks_url": "https://user:pw@login.example.com/"}, "jwt.jwks_url: "),
        ({"audience": []}, "jwt.audience: "),
    ],
)
def test_tokens_that_prove_too_much_or_nothing_are_refused(more: dict[str, Any], said: str) -> None:
    assert refusal([A], jwt={**TOKENS, **more}).startswith(said)


def test_tokens_without_tenants_are_refused() -> None:
    assert refusal([], jwt=TOKENS).startswith("jwt: there are no tenants")
