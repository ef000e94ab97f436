"""Which policy a request gets: what the operator set for its route and model, or less if the client asks for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast, get_args

from canon.errors import PolicyError
from canon.policy import RULES_VERSION, Mode, Policy

HEADER = "x-kvgate-policy"

Route: TypeAlias = Literal["chat", "completions", "responses", "messages"]
_ROUTES: Mapping[str, Route | None] = {**{route: route for route in get_args(Route)}, "*": None}


@dataclass(frozen=True, slots=True)
class PolicyFor:
    """A policy for some requests; None stands for all routes or all models."""

    policy: str
    route: Route | None = None
    model: str | None = None
    rules: Mapping[str, Mode] = field(default_factory=dict)  # single rules switched

    def covers(self, route: Route, model: str) -> bool:
        return self.route in (None, route) and self.model in (None, model)


def parse_policy(text: str) -> PolicyFor:
    """`full`, `chat=full`, `chat/MODEL=full` or `full,tool_order:off`; raises PolicyError saying what is wrong."""
    where, equals, chosen = text.rpartition("=")
    policy, *switches = chosen.split(",")
    rules = dict(_switch(each, policy) for each in switches)
    Policy.named(policy).with_rules(rules)
    if not equals:
        return PolicyFor(policy, rules=rules)
    route, slash, model = where.partition("/")
    if route not in _ROUTES:
        raise PolicyError(
            f"no route is called {route!r:.40}; there are {', '.join(get_args(Route))}, and * for all"
        )
    if slash and not model:
        raise PolicyError(f"{text!r:.80} names no model behind the slash")
    return PolicyFor(policy, _ROUTES[route], model or None, rules)


def _switch(text: str, policy: str) -> tuple[str, Mode]:
    """`tool_order:off`."""
    rule, colon, mode = text.partition(":")
    if not colon:
        raise PolicyError(f"{text!r:.80} switches nothing: write rule:act, rule:report or rule:off")
    if policy == "off":
        raise PolicyError(f"under off no rule runs, so {rule!r:.40} cannot be switched")
    return rule, cast(Mode, mode)  # what else it may be is refused with its name, behind this


class Policies:
    """Finds the policy of a request. Of several that cover it, the one that names most counts, then the last one."""

    def __init__(self, chosen: Sequence[PolicyFor], rules_version: int = RULES_VERSION) -> None:
        self._default = Policy.named("safe").with_version(rules_version)
        self._chosen = [
            (each, Policy.named(each.policy).with_rules(each.rules).with_version(rules_version))
            for each in chosen
        ]

    def of(self, route: Route, model: str, wanted: str | None) -> Policy:
        """The policy; `wanted` is what the client's header says. Raises PolicyError for a name that is none."""
        best, policy = -1, self._default
        for each, its in self._chosen:
            named = (each.model is not None) * 2 + (each.route is not None)
            if each.covers(route, model) and named >= best:
                best, policy = named, its
        return policy if wanted is None else policy.lowered(wanted)
