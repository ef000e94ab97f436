"""Lists in the configuration file that one value may stand for."""

from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field

from canon.errors import PolicyError
from gateway.canonical.policies import parse_policy


def _listed(given: object) -> object:
    return [given] if isinstance(given, str) else given


def _usable(given: list[str]) -> list[str]:
    for text in given:
        try:
            parse_policy(text)
        except PolicyError as error:
            raise ValueError(str(error)) from error
    return given


OneOrMany = BeforeValidator(_listed)  # for lists of strings

# As --canon-policy, for the requests of whoever it stands with; empty: nothing is said.
CanonPolicies: TypeAlias = Annotated[
    list[str], OneOrMany, AfterValidator(_usable), Field(default_factory=list)
]
