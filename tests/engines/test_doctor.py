"""The doctor at the real heavy engines, with and without the flag that makes them report."""

import asyncio
import json
from pathlib import Path

import pytest

from gateway.commands.doctor import command
from tests.engines.record import Session

pytestmark = pytest.mark.engines

Served = tuple[Session, str, Path]


async def examined(url: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict]:
    options = command.DoctorOptions(url, words=700, tokenizer=folder)
    code = await asyncio.to_thread(command.run, options, {}, as_json=True)
    said = capsys.readouterr()
    print(said.err, said.out)
    return code, json.loads(said.out)


@pytest.mark.parametrize(("session_url", "block"), [("vllm", 128), ("sglang", 1)], indirect=["session_url"])
async def test_with_their_flags_they_are_well(
    session_url: Served, block: int, smollm2_folder: Path, capsys: pytest.CaptureFixture[str]
):
    session, url, _ = session_url
    code, report = await examined(url, smollm2_folder, capsys)
    assert code == 0, report
    assert report["kind"] == session.name
    assert report["block_size"] == block
    assert {check["finding"] for check in report["checks"]} == {"yes"}


@pytest.mark.parametrize("session_url", ["vllm_bare"], indirect=True)
async def test_without_it_the_flag_is_named(
    session_url: Served, smollm2_folder: Path, capsys: pytest.CaptureFixture[str]
):
    _, url, _ = session_url
    code, report = await examined(url, smollm2_folder, capsys)
    assert code == 1
    assert "--enable-prompt-tokens-details" in " ".join(report["fixes"])


@pytest.mark.parametrize("session_url", ["sglang_bare"], indirect=True)
async def test_sglang_is_asked_for_details_and_reports_hits_without_its_flag(
    session_url: Served, smollm2_folder: Path, capsys: pytest.CaptureFixture[str]
):
    _, url, _ = session_url
    code, report = await examined(url, smollm2_folder, capsys)
    findings = {check["name"]: check["finding"] for check in report["checks"]}
    assert code == 0
    assert (findings["reports"], findings["fresh"]) == ("yes", "unknown")  # it leaves out a zero then
