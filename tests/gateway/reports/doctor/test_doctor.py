"""The doctor finds every sickness of an engine, and none in a healthy one."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.commands.doctor import command
from gateway.reports.doctor import Plan
from tests.gateway.reports.doctor.lying_engine import LyingEngine, served
from tests.tiny_models import save_tiny_model


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model("llama", tmp_path_factory.mktemp("tiny"))


def examined(
    engine: LyingEngine, capsys: pytest.CaptureFixture[str], **options: Any
) -> tuple[int, dict[str, Any]]:
    with served(engine) as url:
        code = command.run(command.DoctorOptions(url, words=400, **options), {}, as_json=True)
    return code, json.loads(capsys.readouterr().out)


def findings(report: dict[str, Any]) -> dict[str, str]:
    return {check["name"]: check["finding"] for check in report["checks"]}


@pytest.mark.parametrize("block", [1, 2, 3, 16, 48, 64, 128])
def test_a_healthy_engine_is_well_and_its_block_size_is_found(block: int, capsys: pytest.CaptureFixture[str]):
    code, report = examined(LyingEngine(block=block), capsys)
    assert code == 0
    assert report["block_size"] == block
    assert report["kind"] == "vllm"
    assert set(findings(report).values()) == {"yes", "unknown"}
    assert [name for name, found in findings(report).items() if found == "unknown"] == ["render"]


@pytest.mark.parametrize(
    ("sick", "checks", "fix"),
    [
        (LyingEngine(says="null"), {"reports"}, "--enable-prompt-tokens-details"),
        (LyingEngine(says="nothing"), {"reports"}, "--enable-prompt-tokens-details"),
        (LyingEngine(says="nothing", owner="sglang"), {"reports"}, "--enable-cache-report"),
        (LyingEngine(says="nothing", owner="library"), {"reports"}, "reports no reuse"),
        (LyingEngine(has_usage=False), {"reports", "stream"}, "--enable-prompt-tokens-details"),
        (LyingEngine(says="zero"), {"repeat"}, ""),
        (LyingEngine(caches=False, owner="sglang"), {"repeat"}, "--disable-radix-cache"),
        (LyingEngine(says="prompt-1"), {"fresh", "repeat"}, "Do not bill"),
        (LyingEngine(says="too much"), {"fresh", "repeat", "bounds"}, "whoever makes the engine"),
        (LyingEngine(salts="ignored"), {"salt"}, "cache_salt"),
        (LyingEngine(stream="no usage"), {"stream"}, "include_usage"),
        (LyingEngine(stream="no cached"), {"stream"}, "include_usage"),
        (LyingEngine(stream="other"), {"stream"}, "either streams or whole"),
        (LyingEngine(stream="refused"), {"stream"}, "include_usage"),
    ],
    ids=lambda value: "" if isinstance(value, (set, str)) else f"{value.says},{value.stream},{value.owner}",
)
def test_every_sickness_is_found_and_named(
    sick: LyingEngine, checks: set[str], fix: str, capsys: pytest.CaptureFixture[str]
):
    code, report = examined(sick, capsys)
    assert code == 1
    assert {name for name, found in findings(report).items() if found == "no"} == checks
    assert fix in " ".join(report["fixes"])
    assert not report["healthy"]


def test_an_engine_that_leaves_out_a_zero_is_examined_as_far_as_it_speaks(capsys: pytest.CaptureFixture[str]):
    code, report = examined(LyingEngine(says="no zero"), capsys)
    assert code == 0
    assert report["block_size"] == 16
    assert {name for name, found in findings(report).items() if found == "unknown"} == {
        "fresh",
        "salt",
        "render",
    }


def test_an_engine_that_refuses_salts_is_not_called_sick(capsys: pytest.CaptureFixture[str]):
    code, report = examined(LyingEngine(salts="refused"), capsys)
    assert code == 0
    assert findings(report)["salt"] == "unknown"


def test_salt_is_asked_only_where_the_engine_takes_one(capsys: pytest.CaptureFixture[str]):
    _, report = examined(LyingEngine(owner="llamacpp"), capsys)
    assert "salt" not in findings(report)


def test_it_costs_no_more_than_told(capsys: pytest.CaptureFixture[str]):
    engine = LyingEngine(block=97)
    _, report = examined(engine, capsys)
    plan = Plan(words=400, salt=True)
    assert report["requests"] == engine.requests <= plan.requests
    # The template and the tail of every prompt come on top of its words.
    assert report["prompt_tokens"] <= plan.prompt_tokens + 20 * plan.requests


def test_a_render_that_differs_is_found_by_its_count(tiny_folder: Path, capsys: pytest.CaptureFixture[str]):
    code, report = examined(LyingEngine(), capsys, tokenizer=tiny_folder)
    assert code == 1
    assert findings(report)["render"] == "no"


def test_the_key_comes_from_the_environment_and_is_sent(capsys: pytest.CaptureFixture[str]):
    engine = LyingEngine()
    with served(engine) as url:
        options = command.DoctorOptions(url, words=64, key_env="THE_KEY")
        assert command.run(options, {}, as_json=True) == 2
        assert "THE_KEY holds no key" in capsys.readouterr().err
        command.run(options, {"THE_KEY": "s3cret"}, as_json=True)
    assert engine.keys == {"Bearer s3cret"}
    assert "s3cret" not in "".join(capsys.readouterr())


def test_the_key_may_be_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    engine, file = LyingEngine(), tmp_path / "key"
    with served(engine) as url:
        options = command.DoctorOptions(url, words=64, key_file=file)
        assert command.run(options, {}, as_json=True) == 2
        assert "FileNotFoundError" in capsys.readouterr().err
        file.write_text("\n")
        assert command.run(options, {}, as_json=True) == 2
        assert "holds no key" in capsys.readouterr().err
        both = command.DoctorOptions(url, words=64, key_file=file, key_env="THE_KEY")
        assert command.run(both, {"THE_KEY": "s3cret"}, as_json=True) == 2
        file.write_text("s3cret\n")
        command.run(options, {}, as_json=True)
    assert engine.keys == {"Bearer s3cret"}
    assert "s3cret" not in "".join(capsys.readouterr())


def test_where_nothing_answers_it_says_so(capsys: pytest.CaptureFixture[str]):
    assert command.run(command.DoctorOptions("http://127.0.0.1:9"), {}, as_json=True) == 2
    said = capsys.readouterr().err
    assert "See that it runs" in said
    assert "--kind" not in said


@pytest.mark.parametrize(
    ("url", "said"),
    [("127.0.0.1:9", "http://host:port"), ("http://me:s3cret@127.0.0.1:9", "a key has a place")],
)
def test_an_address_that_is_none_is_refused_unasked_and_not_repeated(
    url: str, said: str, capsys: pytest.CaptureFixture[str]
):
    assert command.run(command.DoctorOptions(url, kind="openai"), {}, as_json=True) == 2
    told = "".join(capsys.readouterr())
    assert said in told
    assert "s3cret" not in told


def test_a_refused_chat_is_told_with_the_status(capsys: pytest.CaptureFixture[str]):
    with served(LyingEngine(refuses_all=True)) as url:
        assert command.run(command.DoctorOptions(url), {}, as_json=True) == 2
    assert "answered 400" in capsys.readouterr().err


def test_an_api_without_a_model_list_needs_kind_and_model(capsys: pytest.CaptureFixture[str]):
    with served(LyingEngine(lists_models=False)) as url:
        assert command.run(command.DoctorOptions(url), {}, as_json=True) == 2
        assert "--kind" in capsys.readouterr().err
        assert command.run(command.DoctorOptions(url, kind="openai"), {}, as_json=True) == 2
        assert "--model" in capsys.readouterr().err
        assert command.run(command.DoctorOptions(url, kind="openai", model="m"), {}, as_json=True) == 0


def test_the_table_shows_every_check_and_what_to_add(capsys: pytest.CaptureFixture[str]):
    with served(LyingEngine(says="null")) as url:
        assert command.run(command.DoctorOptions(url, words=64), {}, as_json=False) == 1
    out = capsys.readouterr().out
    assert "Does a repeated prompt hit?" in out
    assert "--enable-prompt-tokens-details" in out
