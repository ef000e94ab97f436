"""Geographic coordinates."""

from canon.values.label_words import COORDINATES
from canon.values.labels import Label
from canon.values.shapes import COORDINATES as PAIR
from canon.values.shapes import DEGREE
from canon.values.value import Value


def coordinates_at(text: str, start: int, stop: int, label: Label) -> Value | None:
    if found := PAIR.match(text, start, stop):
        return Value("coordinates", found.end(), "." in found[0] and label.means(COORDINATES))
    found = DEGREE.match(text, start, stop)
    if found is None or "." not in found[0]:
        return None
    return Value("coordinates", found.end(), bool(label.name & COORDINATES))
