"""Routers by the names that a configuration has for them."""

import time
from collections.abc import Callable

from gateway.routing.consistent_hash import ConsistentHash
from gateway.routing.least_loaded import LeastLoaded
from gateway.routing.prefix_router import PrefixRouter
from gateway.routing.round_robin import RoundRobin
from gateway.routing.router import Router
from gateway.routing.settings import RoutingSettings


def router_of(settings: RoutingSettings, clock: Callable[[], float] = time.monotonic) -> Router:
    """The router of one engine's replicas."""
    match settings.policy:
        case "prefix":
            return PrefixRouter(settings, clock)
        case "consistent_hash":
            return ConsistentHash()
        case "round_robin":
            return RoundRobin()
        case "least_load":
            return LeastLoaded()
