"""Hints within quotas are granted, others are lowered, and the client is told."""

from engine_adapters.base import Retention
from gateway.limits.hints import Pins
from gateway.limits.tenant_limits import NO_LIMITS, TenantLimits
from tests.gateway.limits.clock import Clock


def granted(
    pins: Pins, wish: Retention | None, limits: TenantLimits, request: str = "r", session: str | None = None,
    tokens: int = 100, tenant: str = "a",
) -> tuple[Retention | None, bytes | None]:  # fmt: skip
    return pins.granted(wish, limits, tenant=tenant, request=request, session=session, tokens=tokens)


def test_without_quotas_a_wish_is_granted_as_it_is() -> None:
    wish = Retention(pin_s=60, ttl_s=5, priority=1)
    assert granted(Pins(), wish, NO_LIMITS) == (wish, None)
    assert granted(Pins(), None, NO_LIMITS) == (None, None)


def test_a_pin_that_is_too_long_ends_earlier_and_a_priority_that_is_too_high_is_lowered() -> None:
    limits = TenantLimits(longest_pin_s=30, highest_priority=0)
    assert granted(Pins(), Retention(60, None, 1), limits) == (
        Retention(30, None, 0),
        b"priority=0; pin_ttl=30",
    )
    assert granted(Pins(), Retention(30, None, -1), limits) == (Retention(30, None, -1), None)


def test_pins_over_the_tokens_that_may_be_pinned_are_refused_until_others_have_ended() -> None:
    clock = Clock()
    pins, limits, wish = Pins(clock), TenantLimits(pinned_tokens=250), Retention(pin_s=60)
    for name in "xy":
        assert granted(pins, wish, limits, name) == (wish, None)
    assert granted(pins, wish, limits, "z") == (None, b"pin_ttl=0")
    assert granted(pins, wish, limits, "z", tenant="b") == (wish, None)
    clock.now += 1000  # both still run
    assert granted(pins, wish, limits, "z") == (None, b"pin_ttl=0")
    pins.ended("a", "x")
    clock.now += 59
    assert granted(pins, wish, limits, "z") == (None, b"pin_ttl=0")
    clock.now += 2
    assert granted(pins, wish, limits, "z") == (wish, None)
    assert pins.tokens("a") == 200


def test_a_session_has_one_pin_the_newest() -> None:
    pins, limits, wish = Pins(Clock()), TenantLimits(pinned_tokens=250), Retention(pin_s=60)
    for turn in range(1, 20):
        assert granted(pins, wish, limits, f"r{turn}", "s", 10 * turn) == (wish, None)
        pins.ended("a", f"r{turn}")
    assert pins.tokens("a") == 190


def test_a_long_name_of_a_session_is_not_kept() -> None:
    pins, limits, wish = Pins(Clock()), TenantLimits(pinned_tokens=250), Retention(pin_s=60)
    for session in ("s" * 1_000_000, "t" * 1_000_000):
        granted(pins, wish, limits, session=session)
    assert pins.tokens("a") == 200
    assert not any("sss" in repr(pin) for pin in pins._pins["a"])


def test_other_wishes_of_a_request_stay_when_its_pin_is_refused() -> None:
    limits = TenantLimits(pinned_tokens=0)
    assert granted(Pins(), Retention(60, 5.0, 1), limits) == (Retention(0, 5.0, 1), b"pin_ttl=0")


def test_what_has_ended_leaves_nothing_behind() -> None:
    clock = Clock()
    pins, limits = Pins(clock), TenantLimits(pinned_tokens=1000)
    granted(pins, Retention(pin_s=1), limits)
    pins.ended("a", "r")
    clock.now += 2
    assert pins.tokens("a") == 0
    assert pins._pins == {}
