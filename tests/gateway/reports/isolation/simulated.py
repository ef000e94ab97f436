"""Answers of a machine whose pace drifts, jumps and stumbles, in the order in which an examination asks."""

from dataclasses import dataclass, field
from random import Random

from engine_adapters.base import ReuseReport
from gateway.reports.doctor.prober import Told
from gateway.reports.isolation.tenant import Answer
from gateway.reports.isolation.trial import Trial


@dataclass
class Machine:
    """What an answer takes is its cost times the machine's pace, and now and then many times that."""

    random: Random
    noise: float = 0.2  # standard deviation of the logarithm
    drift: float = 0.05  # the same, of each step of a random walk
    jumps: float = 0.02  # how often somebody else's work begins or ends
    stumbles: float = 0.1  # how often an answer takes far longer, with no bound on how far
    reports: bool = False  # whether reuse is reported, of nothing
    _pace: float = field(default=0.0, init=False)
    _busy: bool = field(default=False, init=False)

    def answer(self, gain: float = 1.0) -> Answer:
        """`gain`: how many times faster it comes than a cold one."""
        draw = self.random
        self._pace += draw.gauss(0.001, self.drift)
        self._busy ^= draw.random() < self.jumps
        seconds = 2.0**self._pace * (4.0 if self._busy else 1.0) * draw.lognormvariate(0, self.noise) / gain
        if draw.random() < self.stumbles:
            seconds *= 1 + draw.paretovariate(1.1)
        reuse = ReuseReport(200, 0 if self.reports else None, None, "test", "reported")
        return Answer(Told(reuse, 1, seconds), 20)

    def trials(self, count: int, own: float = 2.0, other: float = 1.0) -> list[Trial]:
        """As an examination makes them: two pairs, a coin for what comes first in each."""
        made = []
        for _ in range(count):
            self.answer()  # the prefix is warmed
            told, fresh = self._pair(other)
            warm, cold = self._pair(own)
            made.append(Trial(cold, warm, told, fresh))
        return made

    def _pair(self, gain: float) -> tuple[Answer, Answer]:
        if self.random.random() < 0.5:
            return self.answer(gain), self.answer()
        cold = self.answer()
        return self.answer(gain), cold
