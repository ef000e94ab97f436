"""`kvgate lint` as a process: logs in, a report out, an exit code that fits a pipeline."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.canon.sample_tokenizers import sample, template, write_folder

RULES = "\n".join(
    f"Rule {number}: be brief, and name the help page that you used for it." for number in range(20)
)


def body(clock: str, question: str = "Where is it?") -> dict:
    return {
        "model": "m",
        "messages": [
            {"role": "system", "content": f"Current time: {clock}\n{RULES}"},
            {"role": "user", "content": question},
        ],
    }


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "requests.jsonl"
    lines = [json.dumps({"request": body(f"2031-05-06 10:11:1{second}")}) for second in range(5)]
    path.write_text("\n".join(lines) + "\n")
    return path


def lint(*arguments: object, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "gateway", "lint", *map(str, arguments)]
    return subprocess.run(command, input=given, capture_output=True, check=False, timeout=300)


def test_json_has_the_findings_and_the_reuse_before_and_after(log: Path):
    run = lint(log, "--json")
    report = json.loads(run.stdout)
    assert run.returncode == 0
    assert report["requests"] == 5
    assert report["reuse_before"] < 0.1 < 0.5 < report["reuse_after"] <= 1
    assert {gain["rule"] for gain in report["rules"]} >= {"dynamic_values"}
    (finding,) = report["findings"]
    assert (finding["path"], finding["requests"]) == ("messages[0].content", 4)
    assert finding["cause"] == "another clock"
    assert "dynamic_values" in finding["fix"]
    assert finding["values"] == ["10:11:10", "10:11:11"]


def test_too_little_reuse_fails_and_enough_does_not(log: Path):
    assert lint(log, "--fail-under", "0.8").returncode == 1
    assert lint(log, "--fail-under", "0.0").returncode == 0


def test_the_table_names_cause_price_and_the_place_in_the_log(log: Path):
    text = lint(log).stdout.decode()
    assert "5 requests" in text
    assert f"{log.name}:2" in text
    assert "10:11:10" in text
    assert "10:11:11" in text


def test_sarif_points_at_the_line(log: Path):
    (run,) = json.loads(lint(log, "--sarif").stdout)["runs"]
    (result,) = run["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": str(log)}, "region": {"startLine": 2}}
    assert result["ruleId"] in {rule["id"] for rule in run["tool"]["driver"]["rules"]}


def test_the_page_escapes_what_a_log_says(tmp_path: Path):
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(json.dumps(body(f"<script>{n}</script>")) for n in range(2)))
    page = lint(path, "--html").stdout.decode()
    assert page.startswith("<!doctype html>")
    assert "<script>" not in page
    assert "&lt;script&gt;0" in page


def test_gzip_and_standard_input_read_the_same(log: Path, tmp_path: Path):
    packed = tmp_path / "requests.jsonl.gz"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    piped = json.loads(lint("-", "--json", given=log.read_bytes()).stdout)
    assert json.loads(lint(packed, "--json").stdout) == piped == json.loads(lint(log, "--json").stdout)


def test_lines_that_are_no_requests_are_counted_and_do_not_end_the_run(log: Path):
    log.write_text("not json\n" + log.read_text() + '{"level": "info"}\n\n')
    report = json.loads(lint(log, "--json").stdout)
    assert report["requests"] == 5
    assert report["skipped_lines"] == {"not JSON": 1, "no request in it": 1}


@pytest.mark.parametrize("content", [b"", b"nonsense\n"])
def test_a_log_without_any_request_is_an_error_that_says_so(tmp_path: Path, content: bytes):
    path = tmp_path / "log"
    path.write_bytes(content)
    run = lint(path)
    assert run.returncode == 2
    assert b"No request found" in run.stderr


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["missing.jsonl"], b"missing.jsonl"),
        (["-", "--policy", "strict"], b"strict"),
        (["-", "--tokenizer", "/nowhere/at/all"], b"/nowhere/at/all"),
        (["-", "--json", "--html"], b"exclude"),
    ],
)
def test_what_cannot_be_done_is_said_with_its_cause(arguments: list[str], word: bytes):
    run = lint(*arguments)
    assert run.returncode != 0
    assert word in run.stderr
    assert b"Traceback" not in run.stderr


def test_a_damaged_gzip_is_an_error_and_no_crash(tmp_path: Path, log: Path):
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(gzip.compress(log.read_bytes())[:40])
    run = lint(path)
    assert run.returncode == 2
    assert b"Traceback" not in run.stderr


def test_a_template_that_breaks_prefixes_is_told_in_every_form_people_read(log: Path, tmp_path: Path):
    folder = write_folder(tmp_path / "model", sample("byte_level"), template("dated"))
    report = json.loads(lint(log, "--json", "--tokenizer", folder).stdout)
    assert [hazard["cause"] for hazard in report["template"]] == ["a template that writes the date"]
    for form in ([], ["--html"]):
        assert b"a template that writes the date" in lint(log, "--tokenizer", folder, *form).stdout
    assert json.loads(lint(log, "--json").stdout)["template"] == []


def test_memory_does_not_grow_with_the_log(tmp_path: Path):
    """Peak memory over a log of many conversations, against one of a sixth of its size."""
    script = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from canon.lint import Linter\n"
        "from canon.lint.linter import PrefixModel, utf8\n"
        "from gateway.commands.lint.log_files import Logs\n"
        "linter = Linter('full')\n"
        "linter._history._max = 4 << 20\n"
        "linter._raw = PrefixModel(utf8, 16, max_blocks=20_000)\n"
        "for request in Logs([Path(sys.argv[1])]).requests():\n"
        "    linter.add(request.body)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )

    def peak(requests: int) -> int:
        path = tmp_path / f"{requests}.jsonl"
        with path.open("w") as log:
            for number in range(requests):
                text = " ".join(str(number * 1000 + word) for word in range(4000))
                log.write(json.dumps(body("10:11:12", text)) + "\n")
        command = [sys.executable, "-c", script, str(path)]
        run = subprocess.run(command, capture_output=True, check=True, timeout=300)
        return int(run.stdout)

    small, large = peak(200), peak(1200)
    growth = (large - small) * 1024
    assert growth < 8 << 20  # of 30 MB more of log, under bounds that the smaller one reaches
