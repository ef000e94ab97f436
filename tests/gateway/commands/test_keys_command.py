"""`kvgate keys`, and that nobody listens to the whole network without keys by accident."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.tenants.keys import hash_of
from gateway.tenants.keys_file import KeysFile, read_keys
from tests.gateway.tenants.people import whose


def run(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, input=given, check=False)


def test_a_new_key_is_shown_once_and_its_line_opens_the_door(tmp_path: Path) -> None:
    shown = run("keys", "new", "--tenant", "a")
    assert shown.returncode == 0
    first, line = shown.stdout.splitlines()
    key = first.removeprefix("key: ")
    assert key not in line
    assert key not in shown.stderr
    file = tmp_path / "keys"
    file.write_text(line + "\n")
    assert whose([KeysFile(file, ["a"])], key.encode()) == "a"


def test_as_json_with_an_end() -> None:
    told = json.loads(run("keys", "new", "--tenant", "a", "--expires", "2027-01-31", "--json").stdout)
    assert told["sha256"] == hash_of(told["key"])
    assert told["line"] == f"a {told['sha256']} 2027-01-31"


def test_an_admins_key_is_one_behind_its_end(tmp_path: Path) -> None:
    told = json.loads(
        run("keys", "new", "--tenant", "a", "--expires", "2027-01-31", "--admin", "--json").stdout
    )
    file = tmp_path / "keys"
    file.write_text(told["line"] + "\n")
    assert told["admin"]
    assert [each.admin for each in read_keys(file, ["a"])] == [True]


def test_a_key_that_is_there_is_hashed_from_standard_input() -> None:
    shown = run("keys", "hash", "--tenant", "a", given="a-key-of-seventeen\n")
    assert shown.stdout == f"a {hash_of('a-key-of-seventeen')}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("new", "--tenant", "a b"),
        ("new", "--tenant", ""),
        ("new", "--tenant", "a", "--expires", "soon"),
        ("hash",),
    ],
)
def test_what_cannot_be_used_is_refused(arguments: tuple[str, ...]) -> None:
    shown = run("keys", *arguments, given="short\n")
    assert (shown.returncode, shown.stdout) == (1, "")
    assert shown.stderr.startswith("Error: ")
    assert "short" not in shown.stderr


def test_a_bind_beyond_this_machine_needs_keys(tmp_path: Path) -> None:
    file = tmp_path / "kvgate.yaml"
    file.write_text(
        "engines:\n  - {name: a, kind: openai, url: 'http://127.0.0.1:1'}\nledger: {url: 'off'}\n"
    )
    shown = run("serve", "--config", str(file), "--host", "0.0.0.0", "--port", "0")
    assert shown.returncode == 1
    assert shown.stderr.startswith("Error: 0.0.0.0 is reached from beyond this machine")
    assert "--allow-no-keys" in shown.stderr


@pytest.mark.parametrize("allowed", ["flag", "key", "tenants"])
def test_with_keys_or_where_it_is_meant_it_listens(tmp_path: Path, allowed: str) -> None:
    more = {
        "flag": "",
        "key": "server: {allow_no_keys: true}\n",
        "tenants": f"tenants: [{{name: a, keys: ['{hash_of('k')}']}}]\n",
    }[allowed]
    file = tmp_path / "kvgate.yaml"
    file.write_text(
        f"engines:\n  - {{name: a, kind: openai, url: 'http://127.0.0.1:1'}}\nledger: {{url: 'off'}}\n{more}"
    )
    flags = ["--allow-no-keys"] if allowed == "flag" else []
    command = [sys.executable, "-m", "gateway", "serve", "--config", str(file), "--host", "0.0.0.0"]
    child = subprocess.Popen([*command, "--port", "0", *flags], stderr=subprocess.PIPE, text=True)
    try:
        lines = [child.stderr.readline() for _ in range(1 if allowed == "tenants" else 2)]
    finally:
        child.kill()
        child.communicate(timeout=120)
    assert "listening on http://0.0.0.0" in lines[-1]
    assert ("WARNING" in lines[0]) is (allowed != "tenants")
