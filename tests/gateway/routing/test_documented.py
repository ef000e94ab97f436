"""What docs/routing.md says is so."""

import re
from pathlib import Path
from typing import get_args

import pytest

from gateway.config.load import load_config
from gateway.config.routing import RoutingConfig
from gateway.routing.policies import router_of
from gateway.routing.router import Reason
from gateway.routing.settings import PolicyName, RoutingSettings
from gateway.settings import CanonSettings

PAGE = Path(__file__).parents[3] / "docs" / "routing.md"


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text()


def test_the_examples_are_configurations(page: str, tmp_path: Path) -> None:
    path, read = tmp_path / "kvgate.yaml", []
    for example in re.findall(r"```yaml\n(engines:.*?)```", page, re.DOTALL):
        path.write_text(example)
        read.append(load_config(path))
    routed, with_events = read
    assert routed.routing.policy == "prefix"
    assert routed.remotes[0][1].cache_tokens == 600_000
    assert with_events.remotes[0][1].kv_events.topic == "kv"


def test_every_policy_and_reason_is_explained(page: str) -> None:
    for name in (*get_args(PolicyName), *get_args(Reason)):
        assert f"| `{name}` |" in page
    for name in get_args(PolicyName):
        assert router_of(RoutingSettings(policy=name))


def test_every_key_is_there_with_its_default(page: str) -> None:
    for name, field in RoutingConfig.model_fields.items():
        rows = [line for line in page.splitlines() if line.startswith("| `") and f"`{name}`" in line]
        default = field.default if isinstance(field.default, str) else f"{field.default:g}"
        assert any(default in row for row in rows), name


def test_the_configurations_defaults_are_the_routers() -> None:
    given, own = RoutingConfig().of(None), RoutingSettings()
    for name in ("policy", "prefill_tokens_per_s", "recompute_price", "bound", "slack_s"):
        assert getattr(given, name) == getattr(own, name)


def test_the_session_headers_are_those_that_count(page: str) -> None:
    for name in CanonSettings().session_headers:
        assert f"`{name}`" in page
