"""When one request was in which stage."""

import time
from types import TracebackType
from typing import Literal, TypeAlias

import msgspec

StageName: TypeAlias = Literal[
    "canonicalize", "tokenize", "queue", "route", "engine_queue", "first_token", "decode", "engine"
]


class Stage(msgspec.Struct, frozen=True):
    """One span of time. Seconds of `time.perf_counter`."""

    name: StageName
    start: float
    end: float


class _Timed:
    """A stage that runs while its block does, whether that fails or not."""

    __slots__ = ("_name", "_stages", "_start")

    def __init__(self, stages: "Stages", name: StageName) -> None:
        self._stages = stages
        self._name = name

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, where: TracebackType | None
    ) -> None:
        self._stages.took(self._name, self._start)


class Stages(msgspec.Struct):
    """The stages of one request so far; those inside the engine follow from when it was handed over and answered."""

    timed: list[Stage] = []
    sent: float | None = None  # to the engine
    first_token: float | None = None
    last_token: float | None = None
    queued_s: float | None = None  # that it waited in the engine; None: the engine does not say

    def took(self, name: StageName, start: float) -> None:
        """A stage that began then has ended now: for what every request does, since a block costs more."""
        self.timed.append(Stage(name, start, time.perf_counter()))

    def stage(self, name: StageName) -> _Timed:
        """`with stages.stage("tokenize"):`"""
        return _Timed(self, name)

    def sending(self) -> None:
        """The request goes to its engine now."""
        self.sent = time.perf_counter()

    def saw_tokens(self, now: float) -> None:
        """The engine has answered something."""
        if self.first_token is None:
            self.first_token = now
        self.last_token = now

    def all(self, ended: float) -> list[Stage]:
        """Every stage of a request that ended then; `engine` is the whole of it where that tells no more."""
        return [*self.timed, *self._in_engine(ended)]

    def _in_engine(self, ended: float) -> list[Stage]:
        if self.sent is None:
            return []
        if self.first_token is None or self.last_token is None:
            return [Stage("engine", self.sent, ended)]
        stages: list[Stage] = []
        begun = self.sent
        if self.queued_s is not None:
            begun = min(self.sent + self.queued_s, self.first_token)
            stages.append(Stage("engine_queue", self.sent, begun))
        stages.append(Stage("first_token", begun, self.first_token))
        stages.append(Stage("decode", self.first_token, self.last_token))
        return stages
