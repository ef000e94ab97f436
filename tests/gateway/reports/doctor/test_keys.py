"""Where keys are said to be: what is wrong is named by its option, and no key is repeated."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.commands.doctor import isolation
from gateway.commands.doctor.keys import key_of
from gateway.reports.errors import DoctorError

KEY = "kvg_qqBwbDTBjVA_mBRGduJkn1aR3QlFsh2en4IWxtrSzbg"


@pytest.mark.parametrize("place", ["env:BLUE", "BLUE", "file:{folder}/key"])
def test_a_key_is_found_where_it_is(place: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    assert key_of(place.format(folder=tmp_path), {"BLUE": f" {KEY} "}, "--key-a") == KEY


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("BLUE", "there is no key in the environment variable BLUE. Say where the key is: env:NAME"),
        ("env:BLUE", "there is no key in the environment variable BLUE"),
        ("env:EMPTY", "there is no key in the environment variable EMPTY"),
        ("file:/no/such", "the key cannot be read from /no/such: no such file"),
        ("file:/", "the key cannot be read from /: is a directory"),
        ("file:", "there is no key in the environment variable of that name"),
        (
            "navy.key",
            "there is no key in the environment variable of that name. Say where the key is: env:NAME",
        ),
    ],
)
def test_where_there_is_none_the_option_is_named(place: str, said: str) -> None:
    with pytest.raises(DoctorError) as raised:
        key_of(place, {"EMPTY": " "}, "--key-b")
    assert str(raised.value).startswith(f"--key-b: {said}")


@pytest.mark.parametrize("place", [KEY, f"env:{KEY}", f"env: {KEY}"])
def test_a_key_that_stands_where_its_place_belongs_is_not_repeated(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = isolation.IsolationOptions("http://127.0.0.1:9", key_a=place, key_b="env:RED")
    assert isolation.run(options, {"RED": "x"}, as_json=True) == 2
    told = "".join(capsys.readouterr())
    assert "--key-a: there is no key in the environment variable of that name" in told
    assert KEY not in told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--key-a", "env:BLUE"], "--isolation"),
        (["--tier", "disk"], "--isolation"),
        (["--isolation", "--kv-events", "tcp://h:1"], "--kv-events"),
        (["--isolation", "--key-env", "A", "--key-file", "b"], "one of --key-env and --key-file"),
        (["--isolation", "--key-a", "env:BLUE"], "--key-b"),
        (["--isolation", "--key-a", "env:A", "--key-b", "env:B", "--key-env", "C"], "leave out --key-env"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(
        app, ["doctor", "http://127.0.0.1:9", *arguments], env={"A": "a", "B": "b", "C": "c"}
    )
    assert done.exit_code == 2  # 1 would be a verdict
    assert said in done.output
