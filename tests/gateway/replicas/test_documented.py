"""What docs/replicas.md says is so."""

import re
from pathlib import Path

import yaml

from gateway.config.assemble import assembled
from gateway.config.load import load_config
from gateway.config.replicas import HealthConfig, RetryConfig

PAGE = (Path(__file__).parents[3] / "docs" / "replicas.md").read_text("utf-8")


def test_the_example_is_a_configuration(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    file = tmp_path / "kvgate.yaml"
    file.write_text(example)
    pools = assembled(load_config(file), {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}).configured.pools
    assert [pool.name for pool in pools] == ["qwen", "llama", "small"]
    assert [each.replica for each in pools[2].replicas] == ["small/10.0.0.5:8080", "small/big"]


def test_every_key_of_health_is_in_the_table_with_its_default() -> None:
    rows = re.findall(r"^\| (`[^|]*) \| ([^|]*) \|", PAGE, re.MULTILINE)
    told: dict[str, float] = {}
    for names, values in rows:
        keys = re.findall(r"`(\w+)`", names)
        numbers = re.findall(r"[\d.]+", values)
        if len(keys) == len(numbers):
            told |= dict(zip(keys, map(float, numbers), strict=True))
    assert HealthConfig().model_dump() == {name: told[name] for name in HealthConfig.model_fields}


def test_retries_have_the_defaults_that_are_told() -> None:
    (told,) = re.findall(r"^`retries: (\{.*?\})`:", PAGE, re.MULTILINE)
    assert RetryConfig().model_dump() == yaml.safe_load(told)
