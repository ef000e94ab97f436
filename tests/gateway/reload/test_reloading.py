"""A process whose file changes: no stream is dropped, a broken file changes nothing, what stays is left alone."""

import hashlib
import os
import signal
import threading
from pathlib import Path

import httpx
import pytest

from tests.gateway.relay.fake_engine import (
    Asked,
    Connection,
    FakeEngine,
    fake_engine,
    hold,
    whole,
)
from tests.gateway.reload.served import served_file
from tests.waiting import PATIENCE_S, wait_until

MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kvgate.yaml"


def config(*engines: FakeEngine, names: str = "abc", more: str = "") -> str:
    entries = [
        f"  - {{name: {name}, kind: openai, url: '{engine.url}', models: [{name}]}}\n"
        for name, engine in zip(names, engines, strict=False)
    ]
    return f"engines:\n{''.join(entries)}ledger: {{url: off}}\n{more}"


def reply(connection: Connection, _: Asked) -> None:
    connection.reply(whole(0))


def test_engines_come_and_go_and_a_stream_ends_where_it_began(file: Path) -> None:
    go_on = threading.Event()
    with (
        fake_engine(hold(go_on)) as one,
        fake_engine(reply) as two,
        served_file(file, config(one)) as gateway,
    ):
        body = {"model": "a", "messages": MESSAGES, "stream": True}
        with gateway.http.stream("POST", f"{gateway.url}/v1/chat/completions", json=body) as answer:
            lines = answer.iter_lines()
            assert "first" in next(lines)
            told = gateway.reload(config(two, names="b"))
            assert (told["engines_added"], told["engines_removed"]) == ("b", "a")
            assert gateway.post(model="b", messages=MESSAGES).status_code == 200
            assert gateway.post(model="a", messages=MESSAGES).status_code == 404
            go_on.set()
            rest = "\n".join(lines)
        assert "last" in rest
        assert "[DONE]" in rest
        assert gateway.child.poll() is None


def test_the_file_is_followed_without_a_signal(file: Path) -> None:
    with fake_engine(reply) as engine, served_file(file, config(engine)) as gateway:
        before = gateway.metrics()
        gateway.write(config(engine, more="canon_policy: [off]\n"))
        gateway.wait_for("loaded again")
        assert gateway.post(model="a", messages=MESSAGES).headers["x-kvgate-canon"].startswith("off")
        after = gateway.metrics()
    assert (
        after["kvgate_config_last_success_timestamp_seconds"]
        > before["kvgate_config_last_success_timestamp_seconds"]
    )
    assert (before["kvgate_config_reloads_total"], after["kvgate_config_reload_failed"]) == (0, 0)


@pytest.mark.parametrize(
    ("broken", "names"),
    [
        ("engines: [", "line 1"),
        ("engines: []\nusage: all\n", "usage"),
        ("", "holds no keys"),
        (
            "engines:\n  - {name: a, kind: openai, url: 'http://127.0.0.1:1', key: {env: NOT_THERE}}\n",
            "NOT_THERE",
        ),
    ],
    ids=["no YAML", "wrong values", "empty", "a secret is missing"],
)
def test_a_broken_file_changes_nothing_and_is_said_loudly_once(file: Path, broken: str, names: str) -> None:
    with fake_engine(reply) as engine, served_file(file, config(engine)) as gateway:
        gateway.write(broken)
        told = gateway.wait_for("CANNOT BE USED")
        assert names in told["errors"]
        assert gateway.post(model="a", messages=MESSAGES).status_code == 200
        assert gateway.metrics()["kvgate_config_reload_failed"] == 1
        gateway.reload(config(engine, more="usage: full\n"))
        assert "kvgate" in gateway.post(model="a", messages=MESSAGES).json()["usage"]
        assert gateway.metrics()["kvgate_config_reload_failed"] == 0
        assert len(gateway.said("CANNOT BE USED")) == 1


def test_a_file_that_became_a_pipe_is_not_waited_for(file: Path) -> None:
    with fake_engine(reply) as engine, served_file(file, config(engine)) as gateway:
        file.unlink()
        os.mkfifo(file)
        assert "no plain file" in gateway.wait_for("CANNOT BE USED")["errors"]
        file.unlink()
        gateway.reload(config(engine, more="usage: full\n"))
        assert "kvgate" in gateway.post(model="a", messages=MESSAGES).json()["usage"]


def test_an_engine_that_stays_keeps_its_connections(file: Path) -> None:
    seen: list[int] = []

    def remember(connection: Connection, _: Asked) -> None:
        seen.append(connection._raw.getpeername()[1])
        connection.reply(whole(0))

    with fake_engine(remember) as one, fake_engine(reply) as two, served_file(file, config(one)) as gateway:
        done = threading.Event()

        def ask() -> None:  # all the time, since a connection that idles is let go
            while not done.is_set():
                assert gateway.post(model="a", messages=MESSAGES).status_code == 200

        asking = threading.Thread(target=ask)
        asking.start()
        wait_until(lambda: seen, "the first one is answered")
        told = gateway.reload(config(one, two, more="canon_policy: [off]\n"))
        answered = len(seen)
        wait_until(lambda: len(seen) > answered + 1, "others are")
        done.set()
        asking.join(PATIENCE_S)
        assert told["engines_added"] == "b"
        assert "engines_changed" not in told
        assert len(set(seen)) == 1


def test_keys_that_wait_for_the_next_start_are_named(file: Path) -> None:
    with fake_engine(reply) as engine, served_file(file, config(engine)) as gateway:
        gateway.reload(config(engine, more="server: {grace_s: 5, port: 1}\n"))
        assert gateway.wait_for("no effect before")["keys"] == "server.grace_s, server.port"
        assert gateway.metrics()["kvgate_config_keys_waiting"] == 2
        gateway.reload(config(engine))
        assert gateway.metrics()["kvgate_config_keys_waiting"] == 0


def test_keys_that_nothing_reads_are_named_when_they_begin_to_be_of_no_effect(file: Path) -> None:
    message = "these keys have no effect"
    with (
        fake_engine(reply) as one,
        served_file(file, config(one, more="routing: {policy: round_robin, bound: 2}\n")) as gateway,
    ):
        assert gateway.wait_for(message)["keys"] == (
            "routing.bound: nothing reads it under routing.policy: round_robin"
        )
        gateway.reload(config(one, more="routing: {policy: prefix, bound: 2}\n"))
        gateway.reload(config(one, more="routing: {policy: round_robin}\n"))
        gateway.reload(config(one, more="routing: {policy: round_robin, slack_s: 9}\n"))
        assert gateway.wait_for(message, 2)["keys"].startswith("routing.slack_s: ")
        gateway.reload(config(one, more="routing: {policy: round_robin, slack_s: 9}\nusage: full\n"))
        assert len(gateway.said(message)) == 2 + len(gateway.said(f"{message} before"))


def test_keys_of_tenants_change_without_a_restart(file: Path) -> None:
    def with_key(key: str) -> str:
        digest = hashlib.sha256(key.encode()).hexdigest()
        return f"tenants: [{{name: t, keys: [{digest}]}}]\nsalt_secret: {{env: SALT}}\n"

    def status(key: str) -> int:
        headers = {"authorization": f"Bearer {key}"}
        body = {"model": "a", "messages": MESSAGES}
        return gateway.http.post(f"{gateway.url}/v1/chat/completions", json=body, headers=headers).status_code

    with (
        fake_engine(reply) as engine,
        served_file(file, config(engine, more=with_key("old")), SALT="x" * 40) as gateway,
    ):
        assert (status("old"), status("new")) == (200, 401)
        gateway.reload(config(engine, more=with_key("new")))
        assert (status("old"), status("new")) == (401, 200)


def test_a_secret_file_that_changes_is_read_again(file: Path, tmp_path: Path) -> None:
    secret = tmp_path / "key"
    secret.write_text("first-key")
    with fake_engine(reply) as engine:
        text = (
            f"engines:\n  - {{name: a, kind: openai, url: '{engine.url}', models: [a], key: {{file: {secret}}}}}\n"
            "ledger: {url: off}\n"
        )
        with served_file(file, text) as gateway:
            assert gateway.post(model="a", messages=MESSAGES).status_code == 200
            secret.write_text("second-key")
            told = gateway.wait_for("loaded again")
            # An engine that takes long to say that it is there is away at first.
            wait_until(lambda: gateway.post(model="a", messages=MESSAGES).status_code == 200, "it is there")
            assert told["engines_changed"] == "a"
            assert "-key" not in str(gateway.lines)
        keys = [asked.headers["authorization"] for asked in engine.asked]
    assert keys == ["Bearer first-key", "Bearer second-key"]


def test_no_request_fails_while_the_file_changes_all_the_time(file: Path) -> None:
    """A client that never stops, over twelve configurations: engines swap names, policies change."""
    statuses: list[int] = []
    stop = threading.Event()

    def ask(url: str) -> None:
        with httpx.Client(timeout=PATIENCE_S) as http:
            while not stop.is_set():
                body = {"model": "a", "messages": MESSAGES}
                statuses.append(http.post(f"{url}/v1/chat/completions", json=body).status_code)

    with fake_engine(reply) as one, fake_engine(reply) as two, served_file(file, config(one, two)) as gateway:
        client = threading.Thread(target=ask, args=(gateway.url,))
        client.start()
        for turn in range(12):
            engines = (one, two) if turn % 2 else (two, one)
            gateway.reload(config(*engines, more=f"canon_policy: [{'off' if turn % 3 else 'full'}]\n"))
            count = len(statuses)
            wait_until(lambda count=count: len(statuses) > count + 2, "requests go on")
        stop.set()
        client.join(PATIENCE_S)
        assert set(statuses) == {200}
        wait_until(lambda: gateway.metrics()["kvgate_requests_in_flight"] == 0, "all have ended")


def test_a_worker_that_is_started_again_while_the_file_is_broken_goes_on_as_the_others(file: Path) -> None:
    with (
        fake_engine(reply) as engine,
        served_file(file, config(engine, more="canon_policy: [off]\n"), "--workers", "2") as gateway,
    ):
        wait_until(lambda: len(gateway.said("an engine is there")) == 2, "both workers serve")
        gateway.write("engines: [")
        wait_until(lambda: len(gateway.said("CANNOT BE USED")) == 2, "both have seen it")
        worker = next(line["pid"] for line in gateway.said("started") if line["process"] == "worker 1")
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: len(gateway.said("an engine is there")) == 3, "it serves again")
        for _ in range(12):
            assert gateway.post(model="a", messages=MESSAGES).headers["x-kvgate-canon"].startswith("off")
            gateway.http.close()
            gateway.http = httpx.Client(timeout=PATIENCE_S)
        assert len(gateway.said("CANNOT BE USED")) == 3
