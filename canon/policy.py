"""Policies: which rule acts, which only reports, which is off."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, TypeAlias, cast

from canon.errors import PolicyError

# A change of what any rule does to a request needs a new version: running conversations keep theirs.
RULES_VERSION = 1
RULES_VERSIONS = frozenset({1})  # which this build can still act by

Mode: TypeAlias = Literal["act", "report", "off"]
PolicyName: TypeAlias = Literal["off", "observe", "safe", "full"]

# Every rule, in the order in which rules run, and the least policy under which it acts; None: it never does by itself.
RULES: Mapping[str, PolicyName | None] = MappingProxyType(
    {
        "newlines": "safe",
        "unicode": "safe",
        "whitespace": "safe",
        "schema_keywords": "safe",
        "dynamic_values": "full",
        "learned_slots": None,
        "volatile_headers": "full",  # behind those that may leave a header as the first line
        "json_parts": "full",
        "json_in_text": None,
        "property_order": None,
        "tool_order": "full",
        "conversation_memory": "full",
    }
)
_MODES: tuple[Mode, ...] = ("off", "report", "act")
_STRENGTH: Mapping[str, int] = {"off": 0, "observe": 1, "safe": 2, "full": 3}


@dataclass(frozen=True, slots=True)
class Policy:
    """What each rule may do. `applies` is False under `observe`: edits are computed and reported, nothing changes."""

    name: str
    modes: Mapping[str, Mode]  # by rule
    applies: bool = True
    rules_version: int = RULES_VERSION
    stamp: str = field(init=False, repr=False, compare=False)  # the same for policies that do the same

    def __post_init__(self) -> None:
        stamp = f"{self.name} {self.applies} {self.rules_version} {','.join(self.modes.values())}"
        object.__setattr__(self, "stamp", stamp)

    @classmethod
    def named(cls, name: str) -> "Policy":
        """One of `off`, `observe`, `safe`, `full`. Raises PolicyError for any other."""
        if name not in _STRENGTH:
            raise PolicyError(f"no policy is called {name!r:.40}; there are {', '.join(_STRENGTH)}")
        return _NAMED[name]

    @classmethod
    def parse(cls, text: str) -> "Policy":
        """A policy by its name, with single rules switched behind it: `full,tool_order:off`. Raises PolicyError."""
        name, switches = split_policy(text)
        return cls.named(name).with_rules(switches)

    def with_rules(self, switches: Mapping[str, Mode]) -> "Policy":
        """This policy with single rules switched. Raises PolicyError for a rule or a mode that does not exist."""
        for rule, mode in switches.items():
            if rule not in RULES:
                raise PolicyError(f"no rule is called {rule!r:.40}; there are {', '.join(RULES)}")
            if mode not in ("act", "report", "off"):
                raise PolicyError(
                    f"rule {rule} cannot be switched to {mode!r:.40}, but to act, report or off"
                )
        return replace(self, modes=MappingProxyType({**self.modes, **switches}))

    def with_version(self, version: int) -> "Policy":
        """This policy by the rules of another version. Raises PolicyError for one that this build does not have."""
        if version not in RULES_VERSIONS:
            there_are = ", ".join(map(str, sorted(RULES_VERSIONS)))
            raise PolicyError(f"there is no rules version {version}; there are {there_are}")
        return replace(self, rules_version=version)

    def lowered(self, wanted: str) -> "Policy":
        """The weaker of this policy and the one called `wanted`, rule by rule. Raises PolicyError for no policy."""
        other = Policy.named(wanted)
        modes = {rule: min(mode, other.modes[rule], key=_MODES.index) for rule, mode in self.modes.items()}
        name = lower(self.name, wanted)
        return replace(self, name=name, modes=MappingProxyType(modes), applies=self.applies and other.applies)

    def acts(self, rule: str) -> bool:
        return self.modes[rule] == "act"

    def runs(self, rule: str) -> bool:
        """Whether the rule looks at requests at all."""
        return self.modes[rule] != "off"


def split_policy(text: str) -> tuple[str, Mapping[str, Mode]]:
    """`full,tool_order:off` -> its name and its switches, neither looked up; raises PolicyError for another form."""
    name, *switches = text.split(",")
    if switches and name == "off":
        raise PolicyError("under off no rule runs, so none can be switched")
    return name, dict(map(_switch, switches))


def _switch(text: str) -> tuple[str, Mode]:
    rule, colon, mode = text.partition(":")
    if not colon:
        raise PolicyError(f"{text!r:.80} switches nothing: write rule:act, rule:report or rule:off")
    return rule, cast(Mode, mode)  # whether it is one `with_rules` sees


def lower(policy: str, wanted: str) -> str:
    """The weaker one of two policies by name, which is what a client may ask for."""
    return min(policy, Policy.named(wanted).name, key=lambda name: _STRENGTH[name])


def _modes(name: str) -> Mapping[str, Mode]:
    if name == "off":
        return MappingProxyType(dict.fromkeys(RULES, "off"))
    strength = _STRENGTH["full" if name == "observe" else name]
    return MappingProxyType(
        {rule: "act" if least and _STRENGTH[least] <= strength else "report" for rule, least in RULES.items()}
    )


_NAMED = {name: Policy(name, _modes(name), applies=name not in ("off", "observe")) for name in _STRENGTH}
