"""A clock that tests set."""

from dataclasses import dataclass


@dataclass(slots=True)
class Clock:
    now: float = 1000.25

    def __call__(self) -> float:
        return self.now
