"""Replays a log: finds causes, prices them, and measures each rule of a policy."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from canon.canonicalize import canonicalize
from canon.context import SHOWN
from canon.lint.alignment import Divergence, compare, wire_forms
from canon.lint.causes import NEWEST, WIRE_FORMS, Cause, Evidence, cause_of
from canon.lint.history import History
from canon.lint.prefix_model import UNIT, Encode, PrefixModel
from canon.lint.report import LintReport, RuleGain
from canon.lint.segments import Segment, segments_of
from canon.lint.switches import switch_cause, switches_of
from canon.memory import ConversationMemory
from canon.policy import RULES, Policy
from canon.requests.paths import path_text
from canon.results import Edit, Finding

_QUESTION = 256  # bytes; two questions may have as much in common
_FINDINGS = 2_000  # different ones that are kept; the cheapest go

# Rules that bring two forms of one thing together, so that both sides have the same afterwards.
_ONE_FORM = ("newlines", "unicode", "whitespace", "json_parts", "schema_keywords", "tool_order")
_MEMORY_RULE = "conversation_memory"
_DETAILS = {
    "changed": "{where} differs from the request before it",
    "inserted": "{where} has text that the request before it had not",
    "removed": "text that was there is gone at {where}",
    "reordered": "{where} has the same in another order",
    "keys reordered": "{where} has its keys in another order",
    "properties reordered": "{where} has its properties in another order",
    "moved": "a block at {where} stands in another place now",
}


def utf8(text: str) -> bytes:
    """Tokens estimated: four bytes of UTF-8 are one."""
    return text.encode("utf-8", "surrogatepass")


@dataclass(slots=True)
class _Stage:
    """The log as it is with the rules up to one in force."""

    rule: str
    policy: Policy
    model: PrefixModel
    memory: ConversationMemory | None
    reused: int = 0
    requests: int = 0


@dataclass(slots=True)
class _Tally:
    """One finding over all requests it was seen in."""

    first: Finding
    seen: int  # the request it was first seen in
    tokens: int = 0
    requests: int = 0
    last: int = -1


class Linter:
    """Takes requests one by one, so that a log need not fit into memory."""

    def __init__(
        self, policy: str | Policy = "full", encode: Encode | None = None, block_size: int = 16
    ) -> None:
        chosen = Policy.parse(policy) if isinstance(policy, str) else policy
        self._encode = encode or utf8
        self._policy = replace(chosen, applies=True) if chosen.name != "off" else chosen
        self._history = History()
        self._raw = PrefixModel(self._encode, block_size)
        self._stages: list[_Stage] = []
        self._tallies: dict[tuple[str, ...], _Tally] = {}
        self._requests = self._prompt = self._reused = 0

    def add(self, body: Any, scope: str = "", response: Any = None) -> None:
        """One request of the log, in the order in which they were sent, with what was answered where that is known."""
        segments = segments_of(body)
        self._requests += 1
        edits = canonicalize(body, self._policy, scope=scope).edits
        self._open_stages({edit.rule for edit in edits})
        replayed = self._raw.replay(segments)
        self._prompt += replayed.prompt
        self._reused += replayed.reused
        for stage in self._stages:
            self._replay(stage, body, segments, scope, response)
        self._explain(body, segments, edits)
        self._history.add([*segments, *switches_of(body)])

    def report(self) -> LintReport:
        """What was found so far."""
        tallies = sorted(self._tallies.values(), key=lambda tally: -tally.tokens)
        findings = [
            replace(tally.first, tokens_lost=tally.tokens, requests=tally.requests) for tally in tallies
        ]
        last = self._stages[-1].reused if self._stages else self._reused
        return LintReport(
            tuple(findings),
            tuple(tally.seen for tally in tallies),
            self._share(self._reused),
            self._share(last),
            self._requests,
            self._prompt,
            tuple(self._gains()),
            incomplete=(
                "the log has more blocks than are remembered, so reuse may be higher"
                if self._raw.full
                else ""
            ),
        )

    def _share(self, reused: int) -> float:
        return reused / self._prompt if self._prompt else 0.0

    def _gains(self) -> Iterable[RuleGain]:
        before = self._reused
        for stage in self._stages:
            yield RuleGain(
                stage.rule,
                self._share(before),
                self._share(stage.reused),
                stage.reused - before,
                stage.requests,
            )
            before = stage.reused

    def _explain(self, body: Any, segments: list[Segment], edits: Sequence[Edit]) -> None:
        new = [*segments, *switches_of(body)]
        old = self._history.like(new)
        if old is None:
            return
        was = {piece.path: piece for piece in old if piece.role == "switch"}
        now = {piece.path: piece for piece in new if piece.role == "switch"}
        old = [piece for piece in old if piece.role != "switch"]
        for path in was.keys() | now.keys():
            self._switched(body, was.get(path), now.get(path), segments, old)
        for divergence in wire_forms(old, segments):
            self._count(body, divergence, WIRE_FORMS)
        for divergence in compare(old, segments):
            cause = cause_of(Evidence(divergence, old, segments))
            if _is_other_question(divergence, segments, cause):
                continue
            if cause.rule in _ONE_FORM and self._policy.acts(cause.rule):
                rule: str | None = cause.rule  # whichever side has the one form already
            else:
                rule = _ended_by(edits, divergence, path_text(body, divergence.segment.path))
            if rule is not None:
                cause = replace(cause, fix=f"policy {self._policy.name} ends it by rule {rule}")
            self._count(body, divergence, cause)

    def _switched(
        self, body: Any, was: Segment | None, now: Segment | None, new: list[Segment], old: list[Segment]
    ) -> None:
        piece = now or was
        if piece is None or (was is not None and now is not None and was.text == now.text):
            return
        shared = sum(len(self._encode(piece.text)) for piece in _shared(old, new))
        cause = switch_cause(piece)
        before, after = (side.text if side is not None else "" for side in (was, now))
        if shared:
            self._count(body, Divergence("changed", piece, 0, before, after, was, shared), cause)

    def _count(self, body: Any, one: Divergence, cause: Cause) -> None:
        path = path_text(body, one.segment.path)
        key = (cause.rule, cause.name, path if one.segment.turn <= 0 else one.segment.role, _label(one))
        tally = self._tallies.get(key)
        if tally is None:
            if len(self._tallies) >= _FINDINGS:
                del self._tallies[min(self._tallies, key=lambda each: self._tallies[each].tokens)]
            tally = self._tallies[key] = _Tally(_finding(one, cause, path), self._requests - 1)
        tally.tokens += max(1, one.lost // UNIT)
        if self._requests != tally.last:
            tally.last = self._requests
            tally.requests += 1

    def _open_stages(self, edited: set[str]) -> None:
        """A rule is measured from the first request on that it edits; before that it changes nothing."""
        opened = {stage.rule for stage in self._stages}
        if edited and self._policy.acts(_MEMORY_RULE):
            edited.add(_MEMORY_RULE)
        for position, rule in enumerate(RULES):
            if rule in edited - opened:
                self._open(position, rule)

    def _open(self, position: int, rule: str) -> None:
        order = list(RULES)
        at = sum(order.index(stage.rule) < position for stage in self._stages)
        before = self._stages[at - 1] if at else None
        model, reused = (before.model, before.reused) if before else (self._raw, self._reused)
        policy = self._policy.with_rules(dict.fromkeys(order[position + 1 :], "off"))
        memory = ConversationMemory() if rule == _MEMORY_RULE else None
        self._stages.insert(at, _Stage(rule, policy, model.fork(), memory, reused))

    def _replay(self, stage: _Stage, body: Any, segments: list[Segment], scope: str, response: Any) -> None:
        result = canonicalize(body, stage.policy, stage.memory, scope)
        if stage.memory is not None and response is not None:
            stage.memory.record(body, response, scope)
        pieces = segments_of(result.body) if result.changed else segments
        stage.reused += stage.model.replay(pieces).reused
        stage.requests += any(edit.rule == stage.rule for edit in result.edits)


def _is_other_question(one: Divergence, segments: Sequence[Segment], cause: Cause) -> bool:
    """Two conversations that ask alike: what their newest turns have in common is chance."""
    newest = one.segment is segments[-1] and one.segment.role == "user"
    return newest and one.lost < _QUESTION and cause.name in (NEWEST.name, "another number")


def _ended_by(edits: Sequence[Edit], one: Divergence, path: str) -> str | None:
    """The rule that took this very text out or rewrote it; None: what differs is still there."""
    return next((edit.rule for edit in edits if _covers(edit, one, path)), None)


def _covers(edit: Edit, one: Divergence, path: str) -> bool:
    if not path.startswith(edit.path):
        return False
    if edit.moved_to is not None:
        return bool(one.after.strip()) and one.after.strip() in edit.before
    return one.after not in edit.after


def _label(one: Divergence) -> str:
    """What stands before a difference on its line: two clocks of one text are two findings."""
    if one.segment.turn > 0 or not (one.before + one.after).strip():
        return ""
    begin = one.segment.text.rfind("\n", max(0, one.offset - 40), one.offset) + 1
    return one.segment.text[max(begin, one.offset - 40) : one.offset]


def _shared(old: list[Segment], new: list[Segment]) -> list[Segment]:
    there = {piece.key for piece in old}
    return [piece for piece in new if piece.key in there]


def _finding(one: Divergence, cause: Cause, path: str) -> Finding:
    values = (one.before[:SHOWN], one.after[:SHOWN])
    detail = _DETAILS[one.change].format(where=path)
    return Finding(cause.rule, path, cause.name, detail, one.offset, values, fix=cause.fix)


def lint(
    bodies: Iterable[Any], policy: str | Policy = "full", tokenizer: Any = None, block_size: int = 16
) -> LintReport:
    """What breaks the prefixes of a log of request bodies, and what canon would make of it.

    Args:
        bodies: parsed request bodies of any shape, in the order in which they were sent.
        tokenizer: a `PromptTokenizer`; None: tokens are estimated as UTF-8 bytes / 4.
        block_size: tokens a block of the cache that is modelled.

    Raises:
        PolicyError: no policy is called that.
    """
    linter = Linter(policy, tokenizer and encoded_by(tokenizer), block_size)
    for body in bodies:
        linter.add(body)
    report = linter.report()
    return report if tokenizer is None else replace(report, template=tokenizer.prefix_hazards)


def encoded_by(tokenizer: Any) -> Encode:
    """Texts to int32 ids as bytes. Pieces are encoded by themselves, so counts may be a token off at their ends."""

    def encode(text: str) -> bytes:
        ids: bytes = tokenizer.encode(text, add_special_tokens=False).tobytes()
        return ids

    return encode
