"""Names as labels: every new one is a new time series, kept for ever, so there is an end to them."""

OTHER = "other"
_MOST = 200


class Bounded:
    """Lets the first names pass; later ones are `other`. Not locked."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._seen: set[str] = set()

    def __call__(self, name: str) -> str:
        if name in self._seen:
            return name
        if len(self._seen) >= self._most:
            return OTHER
        self._seen.add(name)
        return name
