"""What a test does where the machine lacks something: skip loudly, or fail where everything must be there."""

import importlib.util
import os

import pytest

REQUIRE_ALL = "KVGATE_REQUIRE_ALL"  # "1": a test whose server or package is missing fails

loud_skips: dict[str, int] = {}
"""How often each reason made a test skip, for the summary at the end of the run."""


def require(package: str, how_to_get_it: str) -> None:
    """Skip the running test if `package` cannot be imported; with KVGATE_REQUIRE_ALL=1 fail it."""
    require_that(importlib.util.find_spec(package) is not None, f"{package} is missing: {how_to_get_it}")


def require_that(there: bool, reason: str) -> None:
    """As `require`, for what is no package: a server's binary, a compiler, a device."""
    if there:
        return
    if os.environ.get(REQUIRE_ALL) == "1":
        pytest.fail(f"{reason} ({REQUIRE_ALL}=1)", pytrace=False)
    loud_skips[reason] = loud_skips.get(reason, 0) + 1
    pytest.skip(reason)
