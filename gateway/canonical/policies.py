"""Which policy a request gets: what the operator set for its route and model, or less if the client asks for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, TypeAlias, get_args

from canon.errors import PolicyError
from canon.policy import RULES_VERSION, Mode, Policy, split_policy

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
    policy, rules = split_policy(chosen)
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


class Policies:
    """Finds the policy of a request. Of several that cover it, the one that names most counts, then the last one."""

    def __init__(self, chosen: Sequence[PolicyFor], rules_version: int = RULES_VERSION) -> None:
        self._default = Policy.named("safe").with_version(rules_version)
        self._chosen = [
            (each, Policy.named(each.policy).with_rules(each.rules).with_version(rules_version))
            for each in chosen
        ]
        # Asked for each request; models are few, and whoever makes up others only makes it look again.
        self.covering = lru_cache(maxsize=1024)(self._covering)

    def of(self, route: Route, model: str, wanted: str | None, own: "Policies | None" = None) -> Policy:
        """The policy; `wanted` is what the client's header says. Raises PolicyError for a name that is none.

        `own`: the tenant's, which count before these wherever one of them covers the request.
        """
        policy = None if own is None else own.covering(route, model)
        policy = policy or self.covering(route, model) or self._default
        return policy if wanted is None else policy.lowered(wanted)

    def _covering(self, route: Route, model: str) -> Policy | None:
        """The one that was chosen for such requests; None: none was."""
        best, policy = -1, None
        for each, its in self._chosen:
            named = (each.model is not None) * 2 + (each.route is not None)
            if each.covers(route, model) and named >= best:
                best, policy = named, its
        return policy
