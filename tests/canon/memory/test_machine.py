"""Conversations of many clients at random: forks, retries, edits, tool loops, forgetting. What was sent stays sent."""

import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from canon import canonicalize
from canon.memory import ConversationMemory, LocalStore
from tests.canon.memory.sender import answer, assistant, calling, send, tool, user

TIMES = st.integers(0, 3)
WORDS = st.sampled_from(["one", "two", "Where is it?"])
SCOPES = ["a", "b"]


def prefix(body: dict[str, Any]) -> list[str]:
    return [json.dumps(message) for message in body["messages"]]


@dataclass
class Client:
    """One conversation as its client sees it. Its values carry its name, so that they are known wherever they go."""

    name: str
    scope: str
    session: str
    history: list[Any] = field(default_factory=list)
    sent: list[str] | None = None  # what went out last; None: nothing that must be repeated
    told: set[str] = field(default_factory=set)
    calls: int = 0
    random_ids: bool = False


class Conversations(RuleBasedStateMachine):
    """With sessions of their own, so that no two clients may be mistaken for each other."""

    forgets = False

    def __init__(self) -> None:
        super().__init__()
        self.clients: list[Client] = []
        self.now = 0.0
        size = 4000 if self.forgets else 1 << 30
        store = LocalStore(size, ttl_s=50, clock=lambda: self.now)
        self.memory = ConversationMemory(store, all_recorded=True)

    @initialize()
    def begin(self) -> None:
        self.start(SCOPES[0], "one", 0, False)

    @rule(scope=st.sampled_from(SCOPES), word=WORDS, time=TIMES, random_ids=st.booleans())
    def start(self, scope: str, word: str, time: int, random_ids: bool) -> None:
        name = f"client{len(self.clients)};"
        client = Client(name, scope, f"s{name}", [user(word)], random_ids=random_ids)
        self.clients.append(client)
        self.request(client, time)

    @rule(which=st.integers(0, 5), word=WORDS, time=TIMES)
    def say(self, which: int, word: str, time: int) -> None:
        client = self.clients[which % len(self.clients)]
        client.history += [assistant(f"An answer for {client.name}"), user(word)]
        self.record(client, answer(f"An answer for {client.name}"))
        self.request(client, time)

    @rule(which=st.integers(0, 5), time=TIMES, results=st.integers(1, 2), parts=st.booleans())
    def use_tools(self, which: int, time: int, results: int, parts: bool) -> None:
        client = self.clients[which % len(self.clients)]
        ids = [f"{client.name}-{client.calls + n}" for n in range(results)]
        client.calls += results
        self.record(client, answer(None, *((id_, "stock", '{"n":1}') for id_ in ids)))
        asked = calling(ids[0], '{"n": 1}')
        asked["tool_calls"] = [calling(id_, '{"n": 1}')["tool_calls"][0] for id_ in ids]
        client.history.append(asked)
        for id_ in ids:
            result = tool(id_, "four")
            if parts:
                result["content"] = [{"type": "text", "text": "four"}]
            client.history.append(result)
        self.request(client, time)

    @rule(which=st.integers(0, 5), time=TIMES)
    def retry(self, which: int, time: int) -> None:
        client = self.clients[which % len(self.clients)]
        if client.sent is not None:
            client.sent = client.sent[:-1]  # only the last turn may get another note
        self.request(client, time)

    @precondition(lambda self: any(len(client.history) > 2 for client in self.clients))
    @rule(which=st.integers(0, 5), time=TIMES)
    def edit(self, which: int, time: int) -> None:
        client = self.clients[which % len(self.clients)]
        # Answers without text do not tell which of two conversations they are from once both begin alike.
        alike = len(client.history) > 1 and client.history[1]["content"] is not None
        client.history = [user("rewritten" if alike else f"rewritten {client.name}"), *client.history[1:]]
        client.sent = None
        client.random_ids = False  # what was recorded belongs to another history
        self.request(client, time)

    @rule(seconds=st.sampled_from([1.0, 30.0, 60.0]))
    def wait(self, seconds: float) -> None:
        if self.forgets:
            self.now += seconds

    def request(self, client: Client, time: int) -> None:
        values = [f"Time of {client.name}: {time}", f"User: {client.name}"]
        history = self.with_new_ids(client)
        body = self.send(client, history, values)
        sent = prefix(body)
        if client.sent is not None and not self.forgets:
            assert sent[: len(client.sent)] == client.sent
        client.sent = sent
        self.check(client, history, values, body)
        client.last = body  # type: ignore[attr-defined]

    def send(self, client: Client, history: list[Any], values: list[str]) -> dict[str, Any]:
        return send(self.memory, history, values, scope=client.scope, session=client.session)

    def with_new_ids(self, client: Client) -> list[Any]:
        """Some clients make up ids anew for each request."""
        if not client.random_ids:
            return client.history
        self.fresh = getattr(self, "fresh", 0) + 1
        return json.loads(json.dumps(client.history).replace(f'"{client.name}-', f'"new{self.fresh}-'))  # type: ignore[no-any-return]

    def record(self, client: Client, response: dict[str, Any]) -> None:
        self.memory.record(client.last, response, client.scope, client.session)  # type: ignore[attr-defined]

    def check(self, client: Client, history: list[Any], values: list[str], body: dict[str, Any]) -> None:
        text = json.dumps(body)
        assert all(value in text for value in values), "a value is missing"
        others = [other.name for other in self.clients if other is not client]
        assert not any(f"Time of {name}:" in text or f"User: {name}" in text for name in others)
        came = [body["messages"][0], *history]
        assert len(body["messages"]) == len(came)
        for old, new in zip(came, body["messages"], strict=True):
            self.check_message(old, new)
        ids = [call["id"] for message in body["messages"] for call in message.get("tool_calls", ())]
        results = [message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"]
        assert len(set(ids)) == len(ids)
        assert results == ids[: len(results)]

    @staticmethod
    def check_message(old: dict[str, Any], new: dict[str, Any]) -> None:
        """Nothing of what came is lost: text stays the beginning, and arguments mean the same."""
        assert {key for key in old if key != "content"} == {key for key in new if key != "content"}
        before, after = old["content"], new["content"]
        if isinstance(before, str):
            text = after if isinstance(after, str) else after[0]["text"]
            assert text.startswith(before)
        elif isinstance(before, list):
            assert after[: len(before)] == before
        else:
            assert after is before
        for one, other in zip(old.get("tool_calls", ()), new.get("tool_calls", ()), strict=True):
            assert json.loads(one["function"]["arguments"]) == json.loads(other["function"]["arguments"])

    @invariant()
    def bounded(self) -> None:
        store = self.memory.store
        assert isinstance(store, LocalStore)
        assert not self.forgets or store.bytes <= 4000


class RewrittenConversations(Conversations):
    """With the values in the system text, and all the rules of `full`."""

    def send(self, client: Client, history: list[Any], values: list[str]) -> dict[str, Any]:
        minute = values[0].rpartition(" ")[2]
        values[:] = [f"Current time: 2031-03-04 10:{minute:0>2}:00", f"User name: {client.name}"]
        system = {"role": "system", "content": "\n".join(["Be brief.", *values, "Be kind."])}
        body = {"model": "m", "messages": [system, *history]}
        sent = canonicalize(body, "full", self.memory, client.scope, session=client.session).body
        assert sent["messages"][0]["content"] == "Be brief.\nBe kind."
        return sent  # type: ignore[no-any-return]

    def check(self, client: Client, history: list[Any], values: list[str], body: dict[str, Any]) -> None:
        super().check(client, history, values, body)
        text = json.dumps(body)
        assert not any(f"User name: {other.name}" in text for other in self.clients if other is not client)


class AlikeConversations(Conversations):
    """Without sessions: conversations that begin alike are told apart by what the model answered, or not at all."""

    def request(self, client: Client, time: int) -> None:
        client.session = ""
        client.sent = None  # reuse is not promised here; that nothing is mixed up is
        super().request(client, time)


class ForgetfulConversations(Conversations):
    """Records go at any moment: results are still right."""

    forgets = True


class ForgetfulAlikeConversations(AlikeConversations):
    """The worst of both."""

    forgets = True


_few = settings(max_examples=25, stateful_step_count=20, deadline=None)
TestConversations = Conversations.TestCase
TestConversations.settings = _few
TestRewrittenConversations = RewrittenConversations.TestCase
TestRewrittenConversations.settings = _few
TestAlikeConversations = AlikeConversations.TestCase
TestAlikeConversations.settings = _few
TestForgetfulConversations = ForgetfulConversations.TestCase
TestForgetfulConversations.settings = _few
TestForgetfulAlikeConversations = ForgetfulAlikeConversations.TestCase
TestForgetfulAlikeConversations.settings = _few
