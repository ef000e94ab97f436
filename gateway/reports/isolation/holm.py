"""Holm's procedure (Scandinavian Journal of Statistics 6, 1979): many tests, one bound on being wrong in any."""

from collections.abc import Hashable, Mapping
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)


def adjusted(p_values: Mapping[Name, float]) -> dict[Name, float]:
    """Each p made so much larger that any of those below a bound is wrong no more often than the bound says.

    However the tests depend on each other.
    """
    made: dict[Name, float] = {}
    least = 0.0
    for place, name in enumerate(sorted(p_values, key=lambda each: p_values[each])):
        least = max(least, min((len(p_values) - place) * p_values[name], 1.0))
        made[name] = least
    return made
