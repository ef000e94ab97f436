"""What one tenant owes."""

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class Bill:
    """One tenant's requests in a window. Money is in the table's currency.

    Attributes:
        known: of requests whose reuse was reported.
        at_most: of all requests, where input that may have been cached costs as if it was not; the true sum lies
            between `at_least` and this.
        at_least: the same, where it costs as if it was.
        saved: what reused tokens would have cost more, had they not been reused.
        unpriced: requests whose model has no price, or whose tokens are not known; they are in no sum.
    """

    requests: int = 0
    known: Decimal = Decimal(0)
    at_least: Decimal = Decimal(0)
    at_most: Decimal = Decimal(0)
    saved: Decimal = Decimal(0)
    unpriced: int = 0

    def __add__(self, other: "Bill") -> "Bill":
        return Bill(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))
