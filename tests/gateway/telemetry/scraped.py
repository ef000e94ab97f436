"""A scrape of a running server, parsed by Prometheus' own client."""

from collections.abc import Mapping

import httpx
from prometheus_client.parser import text_string_to_metric_families


class Scraped:
    """Samples of one answer."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples = [sample for family in self.families.values() for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        """The sum of all samples of that name which have these labels; 0 where there are none."""
        return sum(self.all(name, **labels))

    def all(self, name: str, **labels: str) -> list[float]:
        """Values of all samples of that name which have these labels."""
        wanted = labels.items()
        return [one.value for one in self.samples if one.name == name and wanted <= one.labels.items()]

    def labels(self, name: str, key: str) -> Mapping[str, float]:
        """Samples of a name by the value of one label."""
        return {one.labels[key]: one.value for one in self.samples if one.name == name}


def scrape(http: httpx.Client) -> Scraped:
    answer = http.get("/metrics")
    assert answer.status_code == 200
    return Scraped(answer.text)
