"""The doctor finds every sickness of an engine, and none in a healthy one."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.commands.doctor import command
from gateway.reports.doctor import Check, Checkup, Plan
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
    assert [name for name, found in findings(report).items() if found == "unknown"] == ["render", "events"]


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
        "events",
    }


def test_an_engine_that_refuses_salts_is_not_called_sick(capsys: pytest.CaptureFixture[str]):
    code, report = examined(LyingEngine(salts="refused"), capsys)
    assert code == 0
    assert findings(report)["salt"] == "unknown"


def test_salt_is_asked_only_where_the_engine_takes_one(capsys: pytest.CaptureFixture[str]):
    _, report = examined(LyingEngine(owner="llamacpp"), capsys)
    assert "salt" not in findings(report)


@pytest.mark.parametrize(
    "engine",
    [
        LyingEngine(block=97),  # it takes all the requests there can be
        LyingEngine(block=1, a_word=2),
        LyingEngine(a_word=3, owner="other"),
        LyingEngine(a_word=5),
        LyingEngine(template=400),
        LyingEngine(template=3000),
        LyingEngine(has_usage=False),
        LyingEngine(caches=False),
    ],
    ids=lambda engine: f"block {engine.block}, {engine.a_word} a word, template {engine.template}",
)
@pytest.mark.parametrize("words", [64, 400])
def test_it_costs_no_more_than_it_said_beforehand(
    engine: LyingEngine, words: int, tiny_folder: Path, capsys: pytest.CaptureFixture[str]
):
    engine = replace(engine, seen=set())
    with served(engine) as url:
        command.run(command.DoctorOptions(url, words=words, tokenizer=tiny_folder), {}, as_json=True)
    said = re.search(
        r"at most (\d+) requests of one token each, with ([\d,]+) prompt tokens", capsys.readouterr().err
    )
    assert said is not None
    requests, tokens = (int(number.replace(",", "")) for number in said.groups())
    assert 0 < engine.requests <= requests
    assert 0 < engine.prompt_tokens <= tokens
    assert tokens < 30 * words + 128 * requests  # and it is no more than it must be


def test_where_it_said_enough_nothing_is_left_out(capsys: pytest.CaptureFixture[str]):
    """A word is a token and a template is short: what was said beforehand is enough for every question."""
    with served(LyingEngine(block=310, template=100)) as url:
        command.run(command.DoctorOptions(url, words=400), {}, as_json=True)
    told = capsys.readouterr()
    assert json.loads(told.out)["requests"] == Plan(words=400, salt=True).requests - 1
    assert "It stops" not in told.err


def test_where_words_have_many_tokens_it_says_what_it_leaves_out(capsys: pytest.CaptureFixture[str]):
    code, report = examined(LyingEngine(a_word=5), capsys)
    checks = {check["name"]: check for check in report["checks"]}
    assert code == 0
    assert checks["repeat"]["finding"] == "yes"
    assert checks["salt"]["finding"] == "unknown"
    assert "fewer --words" in checks["salt"]["detail"]


def test_an_engine_that_does_not_say_what_it_is_is_called_unknown(capsys: pytest.CaptureFixture[str]):
    with served(LyingEngine(owner="somebody")) as url:
        options = command.DoctorOptions(url, words=64)
        assert command.run(options, {}, as_json=True) == 0
        told = capsys.readouterr()
        report = json.loads(told.out)
        assert (report["kind"], report["kind_known"]) == ("openai", False)
        assert "unknown (speaks OpenAI's routes) engine, model m" in told.err
        command.run(options, {}, as_json=False)
        assert "unknown (speaks OpenAI's routes) at http" in capsys.readouterr().out
        command.run(command.DoctorOptions(url, words=64, kind="openai"), {}, as_json=False)
        assert "openai at http" in capsys.readouterr().out


def test_a_render_that_differs_is_found_by_its_count(tiny_folder: Path, capsys: pytest.CaptureFixture[str]):
    code, report = examined(LyingEngine(), capsys, tokenizer=tiny_folder)
    assert code == 1
    assert findings(report)["render"] == "no"


def test_the_key_comes_from_the_environment_and_is_sent(capsys: pytest.CaptureFixture[str]):
    engine = LyingEngine()
    with served(engine) as url:
        options = command.DoctorOptions(url, words=64, key_env="THE_KEY")
        assert command.run(options, {}, as_json=True) == 2
        assert "--key-env: there is no key in the environment variable THE_KEY" in capsys.readouterr().err
        command.run(options, {"THE_KEY": "s3cret"}, as_json=True)
    assert engine.keys == {"Bearer s3cret"}
    assert "s3cret" not in "".join(capsys.readouterr())


def test_the_key_may_be_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    engine, file = LyingEngine(), tmp_path / "key"
    with served(engine) as url:
        options = command.DoctorOptions(url, words=64, key_file=file)
        assert command.run(options, {}, as_json=True) == 2
        assert "--key-file: the key cannot be read from" in capsys.readouterr().err
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
    assert "The engine under examination does not answer at http://127.0.0.1:9" in said
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


def test_an_api_that_takes_the_newer_name_of_a_limit_alone_is_examined(capsys: pytest.CaptureFixture[str]):
    engine = LyingEngine(limit="max_completion_tokens")
    code, report = examined(engine, capsys)
    assert (code, report["block_size"]) == (0, 16)
    assert report["requests"] == engine.requests <= Plan(words=400, salt=True).requests


def test_flags_that_would_tell_more_are_named_once():
    def checkup(*checks: Check) -> Checkup:
        missing = (
            "--enable-metrics: the engine's own counters",
            "no --disable-radix-cache: with it nothing is reused",
        )
        return Checkup("u", "sglang", "m", None, checks, None, 3, 300, missing=missing)

    fine = Check("repeat", "?", "yes", "")
    assert checkup(fine).others == checkup(fine).missing
    sick = Check("repeat", "?", "no", "", "Start SGLang without --disable-radix-cache.")
    assert checkup(sick).others == ("--enable-metrics: the engine's own counters",)


def test_the_table_shows_every_check_and_what_to_add(capsys: pytest.CaptureFixture[str]):
    with served(LyingEngine(says="null")) as url:
        assert command.run(command.DoctorOptions(url, words=64), {}, as_json=False) == 1
    out = capsys.readouterr().out
    assert "Does a repeated prompt hit?" in out
    assert "--enable-prompt-tokens-details" in out


def test_every_check_is_documented(tiny_folder: Path, capsys: pytest.CaptureFixture[str]):
    _, report = examined(LyingEngine(), capsys, tokenizer=tiny_folder)
    page = (Path(__file__).parents[4] / "docs/reports.md").read_text()
    assert len(report["checks"]) == 9
    for check in report["checks"]:
        assert f"| `{check['name']}` |" in page
