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


@pytest.mark.parametrize(
    ("session_url", "flag"),
    [("vllm_bare", "--enable-prompt-tokens-details"), ("sglang_bare", "--enable-cache-report")],
    indirect=["session_url"],
)
async def test_without_it_the_flag_is_named(
    session_url: Served, flag: str, smollm2_folder: Path, capsys: pytest.CaptureFixture[str]
):
    _, url, _ = session_url
    code, report = await examined(url, smollm2_folder, capsys)
    assert code == 1
    assert flag in " ".join(report["fixes"])
