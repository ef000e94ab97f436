"""An engine's own name of a model is changed where it names the model, and nowhere else."""

import json

import orjson
import pytest

from engine_adapters.reuse.model_names import ModelNames
from engine_adapters.reuse.profiles import PROFILES
from engine_adapters.reuse.watcher import StreamWatcher, WholeWatcher

OWN, SHOWN = "/models/größe 'x'/own.gguf", "small"
NAMES = ModelNames({OWN: SHOWN})
SAID = f'"model":"{OWN}"'


def test_in_a_whole_answer_all_else_keeps_its_bytes() -> None:
    tool = {"model": OWN, "text": SAID}
    written = b'{"x": 1E2, "model" : %s, "content": %s}' % (orjson.dumps(OWN), orjson.dumps([tool]))
    passed = WholeWatcher(PROFILES["openai"], names=NAMES).read(written)
    assert passed == written.replace(b'"model" : %s' % orjson.dumps(OWN), b'"model" : "small"')
    assert orjson.loads(passed)["content"] == [tool]


def test_with_usage_both_are_changed() -> None:
    body = orjson.dumps({"model": OWN, "usage": {"prompt_tokens": 1}})
    watcher = WholeWatcher(PROFILES["openai"], names=NAMES)
    passed = watcher.read(body, lambda got, _: {**got, "usage": 7})
    assert orjson.loads(passed) == {"model": SHOWN, "usage": 7}
    assert WholeWatcher(PROFILES["openai"], names=NAMES).read(body, lambda got, _: None) == orjson.dumps(
        {"model": SHOWN, "usage": {"prompt_tokens": 1}}
    )


@pytest.mark.parametrize("dumps", [orjson.dumps, lambda value: json.dumps(value).encode()])
@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
def test_in_chunks_before_and_behind_the_first_content(dumps, end: bytes) -> None:
    texts = ["", "Hel", SAID, "lo"]
    chunks = [{"choices": [{"delta": {"content": text}}], "model": OWN, "x": "y"} for text in texts]
    stream = b"".join(b"data: " + dumps(chunk) + end for chunk in chunks)
    for size in (1, 7, len(stream)):
        watcher = StreamWatcher(PROFILES["openai"], names=NAMES)
        passed = b"".join(watcher.feed(stream[at : at + size]) for at in range(0, len(stream), size))
        events = [orjson.loads(event[6:]) for event in passed.split(end) if event]
        assert events == [{**chunk, "model": SHOWN} for chunk in chunks]


def test_in_events_with_a_type_it_is_changed_at_the_top_of_what_they_hold() -> None:
    echo = {"model": OWN, "metadata": {"model": OWN}, "tools": [{"model": OWN}]}
    events = [{"type": "response.created", "response": echo}, {"type": "message_start", "message": echo}]
    stream = b"".join(b"event: it\ndata: " + orjson.dumps(event) + b"\n\n" for event in events)
    passed = StreamWatcher(PROFILES["openai"], names=NAMES).feed(stream).split(b"\n\n")
    assert all(event.startswith(b"event: it\n") for event in passed[:2])
    found = [orjson.loads(event.split(b"data: ")[1]) for event in passed[:2]]
    assert [event["response" if number == 0 else "message"] for number, event in enumerate(found)] == [
        {**echo, "model": SHOWN}
    ] * 2


def test_another_name_passes() -> None:
    body = b'{"model":"gpt-4o-2024-08-06"}'
    assert WholeWatcher(PROFILES["openai"], names=NAMES).read(body) is body
