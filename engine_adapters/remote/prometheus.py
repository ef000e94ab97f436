"""What an engine's `/metrics` says, flat."""

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

_MAX = 32 << 20  # characters that are read


def parse_metrics(text: str) -> Mapping[str, float]:
    """Samples by `name{label="value",...}`, labels sorted by name.

    Raises:
        ValueError: this is not Prometheus' text format.
    """
    samples = (sample for family in text_string_to_metric_families(text[:_MAX]) for sample in family.samples)
    return {_name(sample.name, sample.labels): float(sample.value) for sample in samples}


def labelled(counters: Mapping[str, float], name: str) -> Mapping[str, float]:
    """All samples of one name, by their labels as in `parse_metrics`, without braces; "" where there are none."""
    whole = {key: value for key, value in counters.items() if key == name or key.startswith(name + "{")}
    return {key[len(name) + 1 : -1] if key != name else "": value for key, value in whole.items()}


def _name(name: str, labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
    return f"{name}{{{inside}}}" if inside else name
