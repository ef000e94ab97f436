"""One engine's shadow: the prefixes it was sent, by text, by salt and by switches of the template."""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from canon.lint.linter import utf8
from canon.lint.prefix_model import UNIT, PrefixModel
from canon.lint.segments import Segment, segments_of
from canon.lint.switches import SALTS, switches_of
from engine_adapters.base import ReuseReport
from gateway.canonical.gain import GainCounter
from gateway.ledger.expectation import NOTHING_EXPECTED, Expectation, Routed, SentRequest
from gateway.ledger.row import Divergence
from gateway.ledger.shadow.divergence import first_divergence, switch_divergence
from gateway.ledger.shadow.gap import Sent
from gateway.ledger.shadow.prompt_tree import Nearest, PromptTree

_GUESS = 16  # tokens a block where the engine does not say
_PIECE = 1024 * UNIT  # bytes of ids that are looked up at once
_RUNNING = 10_000  # requests whose end was not told; the oldest are taken to have ended
_SCOPES = 1_000  # of which it is known how many tokens four bytes are
_NEW = 0.2  # weight of a new prompt in that


@dataclass(frozen=True, slots=True)
class ShadowSettings:
    """Bounds of the shadow of one engine."""

    blocks: int = 100_000  # hashes in each of two generations, some 20 MB; up to five such sets, by need
    prompt_bytes: int = (
        32 << 20
    )  # of prompts' text, to tell where one leaves another; 0: divergences are not told


class EngineShadow:
    """What one engine was sent. Safe from any thread."""

    def __init__(self, settings: ShadowSettings, block_size: int | None, capacity: int | None = None) -> None:
        self._block = block_size or _GUESS
        self.block_size = block_size
        blocks = settings.blocks if capacity is None else max(1, capacity // self._block // 2)
        self._text = PrefixModel(utf8, self._block, blocks)
        self._salted: PrefixModel | None = None  # forks of it, from the first request on that needs them
        self._switched: PrefixModel | None = None
        self._gain: GainCounter | None = None
        self._tree = PromptTree(settings.prompt_bytes) if settings.prompt_bytes else None
        self._ratios: OrderedDict[str, float] = OrderedDict()  # real tokens to estimated ones
        self._running: OrderedDict[int, None] = OrderedDict()
        self._number = 0
        self._lock = threading.Lock()

    def fork_text(self) -> PrefixModel:
        """A model that has seen the same texts."""
        with self._lock:
            return self._text.fork()

    def expect(
        self, request: SentRequest, elsewhere: PrefixModel | None, shared: threading.Lock
    ) -> Expectation:
        """What the engine should have of `request`, which counts as sent from now on.

        `elsewhere` has what all engines were sent, and is used under `shared`.
        """
        if _is_batch(request.sent):
            return NOTHING_EXPECTED  # several prompts, each with a prefix of its own
        segments, switches = segments_of(request.sent), switches_of(request.sent)
        if not segments and request.tokens is None:
            return NOTHING_EXPECTED
        if request.routed is not None:
            return self._expect_routed(request, request.routed, segments)
        pieces = _pieces(segments, request.tokens)
        anywhere = 0
        if elsewhere is not None:
            with shared:
                anywhere = elsewhere.replay_encoded(pieces, _seed(request.scope)).reused
        saved = self._saved(request)
        with self._lock:
            sent, predicted, nearest = self._send(request, segments, switches, pieces, anywhere)
        divergence = _divergence(request.sent, segments, switches, sent, nearest)
        return Expectation(predicted, saved, divergence, sent)

    def _expect_routed(
        self, request: SentRequest, routed: Routed, segments: Sequence[Segment]
    ) -> Expectation:
        """Whoever routed it has hashed it already, under its salts and switches: only texts are compared here."""
        saved = self._saved(request)
        predicted = routed.predicted // self._block * self._block
        with self._lock:
            number, nearest = self._note(request.scope, segments)
            sent = Sent(
                engine=request.engine,
                number=number,
                scope=request.scope,
                block_size=self._block,
                prompt=routed.prompt,
                reused=routed.predicted,
                salted=routed.predicted,
                switched=routed.predicted,
                elsewhere=routed.anywhere,
                counted=routed.counted,
                running=self._runs(nearest),
            )
            self._begins(number)
        return Expectation(predicted, saved, _divergence(request.sent, segments, (), sent, nearest), sent)

    def _note(self, scope: str, segments: Sequence[Segment]) -> tuple[int, Nearest | None]:
        """The request's number, and what is nearest to its prompt."""
        number = self._number = self._number + 1
        if self._tree is None or not segments:
            return number, None
        return number, self._tree.add(scope, segments, number)

    def _runs(self, nearest: Nearest | None) -> bool:
        return nearest is not None and nearest.request in self._running

    def _begins(self, number: int) -> None:
        self._running[number] = None
        if len(self._running) > _RUNNING:
            self._running.popitem(last=False)

    def ended(self, sent: Sent, reuse: ReuseReport) -> None:
        """Learn from how a request ended."""
        with self._lock:
            self._running.pop(sent.number, None)
            if sent.counted or not reuse.prompt or not sent.prompt or reuse.status != "reported":
                return
            ratio = reuse.prompt / sent.prompt
            known = self._ratios.pop(sent.scope, ratio)
            self._ratios[sent.scope] = known + _NEW * (ratio - known)
            if len(self._ratios) > _SCOPES:
                self._ratios.popitem(last=False)

    def _saved(self, request: SentRequest) -> int | None:
        """What edits brought, from the first request on that was edited; None: there was none."""
        if self._gain is None:
            if request.came is request.sent or request.came == request.sent:
                return None
            self._gain = GainCounter()
        return self._gain.count(request.scope, request.came, request.sent)

    def _send(
        self,
        request: SentRequest,
        segments: Sequence[Segment],
        switches: Sequence[Segment],
        pieces: Sequence[bytes],
        elsewhere: int,
    ) -> tuple[Sent, int, Nearest | None]:
        if switches:
            self._fork(switches)
        text = self._text.replay_encoded(pieces, _seed(request.scope))
        salted = switched = text.reused
        if self._salted is not None:
            salts = [piece for piece in switches if piece.path[0] in SALTS]
            salted = self._salted.replay_encoded(pieces, _seed_of(request.scope, salts)).reused
        if self._switched is not None:
            others = [piece for piece in switches if piece.path[0] not in SALTS]
            switched = self._switched.replay_encoded(pieces, _seed_of(request.scope, others)).reused
        number, nearest = self._note(request.scope, segments)
        counted = request.tokens is not None
        sent = Sent(
            engine=request.engine,
            number=number,
            scope=request.scope,
            block_size=self._block,
            prompt=text.prompt,
            reused=text.reused,
            salted=salted,
            switched=switched,
            elsewhere=elsewhere,
            counted=counted,
            running=self._runs(nearest),
        )
        self._begins(number)
        ratio = 1.0 if counted else self._ratios.get(request.scope, 1.0)
        return sent, int(text.reused * ratio) // self._block * self._block, nearest

    def _fork(self, switches: Sequence[Segment]) -> None:
        """What no request had so far made no difference, so the models were the same until now."""
        salts = sum(piece.path[0] in SALTS for piece in switches)
        if salts and self._salted is None:
            self._salted = self._text.fork()
        if salts < len(switches) and self._switched is None:
            self._switched = self._text.fork()


def _divergence(
    body: Any, segments: Sequence[Segment], switches: Sequence[Segment], sent: Sent, nearest: Nearest | None
) -> Divergence | None:
    for switch in switches:
        if (sent.salted if switch.path[0] in SALTS else sent.switched) < sent.reused:
            return switch_divergence(switch, segments)
    if nearest is None or not nearest.old:
        return None
    return first_divergence(body, nearest.old, segments)


def _pieces(segments: Sequence[Segment], tokens: NDArray[np.int32] | None) -> list[bytes]:
    """A prompt as bytes, `UNIT` a token."""
    if tokens is None:
        return [utf8(f"<|{piece.role}|>{piece.text}") for piece in segments]
    return list(_of_ids(tokens.astype(np.int32, copy=False).tobytes()))


def _of_ids(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), _PIECE):
        yield data[start : start + _PIECE]


@lru_cache(maxsize=_SCOPES)
def _seed(said: str) -> bytes:
    """What keeps prompts of different scopes apart."""
    return blake2b(utf8(said), digest_size=16).digest()


def _seed_of(scope: str, switches: Sequence[Segment]) -> bytes:
    """The same, of prompts with other switches of the template; not remembered, since there may be text in those."""
    said = "\0".join([scope, *(f"{piece.path[0]}={piece.text}" for piece in switches)])
    return _seed.__wrapped__(said)


def _is_batch(body: Any) -> bool:
    prompt = body.get("prompt") if type(body) is dict or isinstance(body, Mapping) else None
    return (
        isinstance(prompt, list) and any(isinstance(item, (str, list)) for item in prompt) and len(prompt) > 1
    )
