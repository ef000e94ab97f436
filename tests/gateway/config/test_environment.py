"""Every key of the file is a variable of the environment, too, and errors name both."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.environment import overlaid
from gateway.config.errors import ConfigError
from gateway.config.load import load_config

ENGINE = "engines:\n  - {name: a, kind: vllm, url: 'http://127.0.0.1:1'}\n"


def load(folder: Path, text: str, **environ: str):
    file = folder / "kvgate.yaml"
    file.write_text(text)
    return load_config(file, environ)


def errors(folder: Path, text: str, **environ: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as refused:
        load(folder, text, **environ)
    return refused.value.messages


def test_a_variable_counts_instead_of_the_file(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        ENGINE + "ledger: {url: off, keep: 30d}\nusage: full\n",
        KVGATE__LEDGER__KEEP="7d",
        KVGATE__USAGE="standard",
        KVGATE__ENGINES__0__URL="http://127.0.0.1:2",
        KVGATE__MAX_BODY_MIB="2.5",
        KVGATE__CANON_POLICY="[full, chat=off]",
        KVGATE_LEDGER="something else",
    )
    assert (config.ledger.url, config.ledger.keep, config.usage) == ("off", "7d", "standard")
    assert (config.engines[0].url, config.max_body_mib) == ("http://127.0.0.1:2", 2.5)
    assert config.canon_policy == ["full", "chat=off"]


def test_engines_are_added_behind_those_of_the_file(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        ENGINE,
        KVGATE__ENGINES__1__KIND="openai",
        KVGATE__ENGINES__1__NAME="b",
        KVGATE__ENGINES__1__URL="http://127.0.0.1:3",
        KVGATE__ENGINES__1__MODELS="{Short-Name: long/name}",
        KVGATE__ENGINES__1__KEY__ENV="MY_KEY",
    )
    assert [each.name for each in config.engines] == ["a", "b"]
    assert config.remotes[1][1].names() == {"Short-Name": "long/name"}
    assert config.remotes[1][1].key.env == "MY_KEY"


def test_no_file_is_needed() -> None:
    config = load_config(None, {"KVGATE__ENGINES": "[{name: a, kind: vllm, url: 'http://127.0.0.1:1'}]"})
    assert config.engines[0].name == "a"
    with pytest.raises(ConfigError, match="engines: field required"):
        load_config(None, {})


def test_what_holds_others_comes_before_what_is_in_it(tmp_path: Path) -> None:
    whole = "[{name: x, kind: vllm, url: 'http://127.0.0.1:9'}]"
    config = load(tmp_path, ENGINE, KVGATE__ENGINES__0__NAME="y", KVGATE__ENGINES=whole)
    assert [(each.name, each.url) for each in config.engines] == [("y", "http://127.0.0.1:9")]


def test_ten_places_are_in_their_order(tmp_path: Path) -> None:
    variables = {
        f"KVGATE__ENGINES__{i}": f"{{name: e{i}, kind: vllm, url: 'http://127.0.0.1:1'}}" for i in range(12)
    }
    config = load(tmp_path, ENGINE, **dict(sorted(variables.items())))
    assert [each.name for each in config.engines] == [f"e{i}" for i in range(12)]


def test_an_empty_variable_is_none(tmp_path: Path) -> None:
    assert load(tmp_path, ENGINE + "usage: full\n", KVGATE__USAGE=" ").usage == "full"


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("KVGATE__USAGE", "all", "usage: input should be 'standard' or 'full', from KVGATE__USAGE"),
        ("KVGATE__NOTHING", "1", "nothing: there is no such key, from KVGATE__NOTHING"),
        ("KVGATE__ENGINES__0__URL", "x", "engines[0].url: write http://host:port"),
        ("KVGATE__ENGINES__0__KIND", "x", "engines[0].kind: missing or unknown; there are "),
        ("KVGATE__ENGINES__2__URL", "x", "engines[2].url, from KVGATE__ENGINES__2__URL: the list has 1 ent"),
        ("KVGATE__USAGE__MORE", "x", "usage.more, from KVGATE__USAGE__MORE: there is no key 'more' in"),
        ("KVGATE__LEDGER__0", "x", "ledger[0], from KVGATE__LEDGER__0: there is no list that could"),
        ("KVGATE__", "x", "KVGATE__: write KVGATE__KEY"),
        ("KVGATE__0", "x", "KVGATE__0: write KVGATE__KEY"),
        ("KVGATE__A____B", "x", "KVGATE__A____B: write KVGATE__KEY"),
        ("KVGATE__USAGE", "[", "usage: the value is no YAML, from KVGATE__USAGE"),
        (
            "KVGATE__MAX_BODY_MIB",
            "soon",
            "max_body_mib: input should be a valid number, from KVGATE__MAX_BODY",
        ),
    ],
)
def test_errors_name_key_and_variable(tmp_path: Path, variable: str, value: str, message: str) -> None:
    found = errors(tmp_path, ENGINE + "usage: full\nledger: {keep: 1d}\n", **{variable: value})
    assert found[0].startswith(message), found


def test_a_key_of_the_file_is_not_blamed_on_the_environment(tmp_path: Path) -> None:
    (found,) = errors(tmp_path, ENGINE + "usage: all\n", KVGATE__LEDGER__URL="off")
    assert "KVGATE" not in found


def test_two_variables_for_one_key_are_refused(tmp_path: Path) -> None:
    (found,) = errors(tmp_path, ENGINE, KVGATE__USAGE="full", KVGATE__usage="full")
    assert "both say it" in found


@pytest.mark.parametrize("value", ["sk-secret", "{sk: sk-secret}", "'sk-secret", "{sk-secret"])
def test_a_secret_is_no_more_allowed_in_there_and_never_repeated(tmp_path: Path, value: str) -> None:
    found = errors(tmp_path, ENGINE, KVGATE__ENGINES__0__KEY=value)
    assert "sk-secret" not in str(found)
    assert "engines[0].key" in str(found)


trees = st.recursive(
    st.integers() | st.booleans(),
    lambda inner: (
        st.dictionaries(st.sampled_from(["a", "b_c", "d"]), inner, min_size=1)
        | st.lists(inner, min_size=1, max_size=3)
    ),
    max_leaves=12,
)


def leaves(tree: object, name: str) -> dict[str, object]:
    if isinstance(tree, dict):
        return {k: v for key, each in tree.items() for k, v in leaves(each, f"{name}__{key.upper()}").items()}
    if isinstance(tree, list):
        return {k: v for place, each in enumerate(tree) for k, v in leaves(each, f"{name}__{place}").items()}
    return {name: tree}


@given(st.dictionaries(st.sampled_from(["a", "b_c", "d"]), trees, min_size=1))
def test_a_file_said_leaf_by_leaf_is_the_same_file(tree: dict[str, object]) -> None:
    said = leaves(tree, "KVGATE")
    found = overlaid(None, {name: repr(value) for name, value in said.items()}, eval)
    assert found.values == tree
    assert len(found.variables) == len(said)
