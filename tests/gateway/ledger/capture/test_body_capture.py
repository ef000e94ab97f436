import json
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from canon.lint import lint
from gateway.commands.lint.log_files import Logs
from gateway.ledger import LedgerConfigError
from gateway.ledger.capture import BodyCapture, CaptureSettings, Redaction


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "bodies"


def captured(folder: Path) -> list[dict[str, Any]]:
    lines = [line for path in sorted(folder.glob("bodies-*.jsonl")) for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def body(text: str = "hello", **fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": text}], **fields}).encode()


def keep(settings: CaptureSettings, *exchanges: tuple[bytes, dict[str, Any]]) -> BodyCapture:
    capture = BodyCapture(settings).start()
    for number, (request, more) in enumerate(exchanges):
        capture.take(f"r{number}", request, **more)
    capture.close()
    return capture


def test_lines_are_what_lint_reads_with_tenant_and_answer(folder: Path) -> None:
    answer = b'{"choices": [{"message": {"content": "hi"}}]}'
    keep(CaptureSettings(folder, 1.0), (body(), {"tenant": "t", "response": answer}), (body("more"), {}))
    logs = Logs(sorted(folder.glob("*.jsonl")))
    found = list(logs.requests())
    assert [each.body["messages"][0]["content"] for each in found] == ["hello", "more"]
    assert (found[0].scope, found[0].response) == ("t", json.loads(answer))
    assert logs.skipped == {}
    assert lint([each.body for each in found]).requests == 2


def test_a_streamed_answer_is_put_together(folder: Path) -> None:
    deltas = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in ("h", "i")]
    stream = b"".join(f"data: {json.dumps(each)}\n\n".encode() for each in deltas) + b"data: [DONE]\n\n"
    keep(CaptureSettings(folder, 1.0), (body(), {"response": stream, "stream": True}))
    assert captured(folder)[0]["response"]["choices"][0]["message"]["content"] == "hi"


def test_without_redaction_a_body_keeps_the_very_form_it_came_in(folder: Path) -> None:
    raw = b'{"model":"m",\r\n "n": 1E2, "messages": [{"role":"user","content":"\\u00e4 \\n"}]}'
    keep(CaptureSettings(folder, 1.0), (raw, {}))
    (path,) = folder.glob("*.jsonl")
    assert path.read_bytes().startswith(b'{"request":' + raw.replace(b"\r\n", b"  ") + b',"id":"r0"')


def test_redaction_reaches_request_and_response(folder: Path) -> None:
    settings = CaptureSettings(folder, 1.0, Redaction(patterns=["sesame"]))
    keep(
        settings,
        (body("open sesame"), {"response": b'{"choices":[{"message":{"content":"sesame is open"}}]}'}),
    )
    (path,) = folder.glob("*.jsonl")
    assert b"sesame" not in path.read_bytes()
    assert captured(folder)[0]["request"]["messages"][0]["content"].startswith("open [redacted ")


def test_nobody_else_may_read_what_is_captured(folder: Path) -> None:
    keep(CaptureSettings(folder, 1.0), (body(), {}))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_a_folder_that_others_can_read_is_refused(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    with pytest.raises(LedgerConfigError, match="chmod 700"):
        BodyCapture(CaptureSettings(folder))


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_that_is_none_is_refused(folder: Path, share: float) -> None:
    with pytest.raises(LedgerConfigError, match="between 0 and 1"):
        BodyCapture(CaptureSettings(folder, share))


def test_the_share_is_chosen_by_id_and_always_the_same(folder: Path) -> None:
    capture = BodyCapture(CaptureSettings(folder, 0.1))
    chosen = [f"req_{n}" for n in range(5000) if capture.wants(f"req_{n}")]
    assert 350 < len(chosen) < 650
    assert all(map(BodyCapture(CaptureSettings(folder, 0.2)).wants, chosen))
    assert not any(map(BodyCapture(CaptureSettings(folder, 0.0)).wants, chosen))


def test_files_rotate_and_the_oldest_go_when_the_folder_is_full(folder: Path) -> None:
    settings = CaptureSettings(folder, 1.0, file_bytes=2_000, total_bytes=6_000)
    keep(settings, *((body(f"{n:03} " + "x" * 300), {}) for n in range(100)))
    sizes = [path.stat().st_size for path in folder.glob("bodies-*.jsonl")]
    assert sum(sizes) <= 6_000
    assert max(sizes) <= 2_000
    assert len(sizes) >= 3
    kept = sorted(int(each["request"]["messages"][0]["content"][:3]) for each in captured(folder))
    assert kept == list(range(100 - len(kept), 100))


def test_what_is_too_large_is_dropped_and_counted(folder: Path) -> None:
    settings = CaptureSettings(folder, 1.0, body_bytes=500)
    capture = keep(settings, (body("x" * 600), {}), (body(), {"response": b"{" + b" " * 600 + b"}"}))
    assert capture.counts().dropped == 1
    assert "response" not in captured(folder)[0]


def test_the_queue_is_bounded_by_bytes(folder: Path) -> None:
    capture = BodyCapture(CaptureSettings(folder, 1.0, queue_bytes=1_000))  # not started
    for number in range(50):
        capture.take(str(number), body("x" * 100))
    assert capture.counts().dropped >= 40
    capture.start()
    capture.close()
    assert capture.counts().kept + capture.counts().dropped == 50


def test_a_body_that_is_no_json_is_counted_and_costs_no_other(folder: Path) -> None:
    capture = keep(CaptureSettings(folder, 1.0), (b"{", {}), (b"\xff", {}), (body(), {}))
    assert (capture.counts().failed, capture.counts().kept) == (2, 1)


def test_two_captures_share_a_folder(folder: Path) -> None:
    captures = [BodyCapture(CaptureSettings(folder, 1.0)).start() for _ in range(2)]
    threads = [
        threading.Thread(target=lambda one=one: [one.take(str(n), body(str(n))) for n in range(100)])
        for one in captures
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in captures:
        one.close()
    assert len(captured(folder)) == 200
