"""What tokens cost: a table by model, and the money of each tenant in a window."""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gateway.ledger.bill import Bill
from gateway.ledger.columns import Columns
from gateway.ledger.errors import LedgerConfigError
from gateway.ledger.reader import LedgerReader
from gateway.ledger.window import ALL, EVER, Where, Window

_MILLION = 1_000_000
_Amount = Annotated[Decimal, Field(ge=0, allow_inf_nan=False)]


class Price(BaseModel):
    """Money for a million tokens of each kind. Cached input costs what input does where it is not said."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: _Amount
    cached_input: _Amount | None = None
    output: _Amount

    @property
    def cached(self) -> Decimal:
        return self.input if self.cached_input is None else self.cached_input


class PriceTable(BaseModel):
    """Prices by the models' names as clients use them; `*` is for all others."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    currency: str = Field(default="USD", max_length=20)
    models: Mapping[str, Price]

    @classmethod
    def load(cls, path: Path) -> "PriceTable":
        """Read a YAML or JSON file.

        Raises:
            LedgerConfigError: it cannot be read, or a key is wrong; the message names it.
        """
        try:
            return cls.model_validate(yaml.safe_load(path.read_text()))
        except OSError as error:
            raise LedgerConfigError(f"the prices in {path} cannot be read: {error.strerror}") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise LedgerConfigError(f"{path} is no YAML: {str(error).splitlines()[0]}") from error
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"])) or "the file"
            raise LedgerConfigError(f"{path}: {key}: {first['msg']}") from None

    def of(self, model: str) -> Price | None:
        """The price of a model; None: the table has none."""
        return self.models.get(model) or self.models.get("*")


def bills(
    reader: LedgerReader, prices: PriceTable, window: Window = EVER, where: Where = ALL
) -> dict[str, Bill]:
    """The bill of each tenant. Reads in chunks; raises LedgerUnavailableError."""
    found: dict[str, Bill] = {}
    names = ("tenant", "model", "reuse_status", "prompt", "reused", "completion")
    for chunk in reader.columns(names, window, where):
        for tenant, bill in _of_chunk(chunk, prices):
            found[tenant] = found.get(tenant, Bill()) + bill
    return found


def _of_chunk(chunk: Columns, prices: PriceTable) -> list[tuple[str, Bill]]:
    pairs = np.stack([chunk.codes["tenant"], chunk.codes["model"]], axis=1)
    groups, members = np.unique(pairs, axis=0, return_inverse=True)
    members = members.reshape(-1)
    texts = chunk.labels
    return [
        (texts["tenant"][tenant], _bill(chunk, members == at, prices.of(texts["model"][model])))
        for at, (tenant, model) in enumerate(groups.tolist())
        if tenant >= 0 and model >= 0
    ]


def _bill(chunk: Columns, mine: np.ndarray[tuple[int], np.dtype[np.bool_]], price: Price | None) -> Bill:
    requests = int(mine.sum())
    if price is None:
        return Bill(requests, unpriced=requests)
    prompt, completion = chunk.numbers["prompt"][mine], chunk.numbers["completion"][mine]
    reported = chunk.codes["reuse_status"][mine] == chunk.labels["reuse_status"].index("reported")
    reused = np.where(reported, chunk.numbers["reused"][mine], np.nan)
    # A request that produced nothing may not say so.
    said = ~np.isnan(prompt)
    out = _tokens(np.nan_to_num(completion), said)
    exact = said & ~np.isnan(reused)
    known_out = _tokens(np.nan_to_num(completion), exact)
    cached, fresh = _tokens(reused, exact), _tokens(prompt - reused, exact)
    guessed = _tokens(prompt, said & ~exact)
    known = _money((fresh, price.input), (cached, price.cached), (known_out, price.output))
    rest = _money((out - known_out, price.output))
    cheap, dear = min(price.cached, price.input), max(price.cached, price.input)
    return Bill(
        requests,
        known=known,
        at_least=known + rest + _money((guessed, cheap)),
        at_most=known + rest + _money((guessed, dear)),
        saved=_money((cached, price.input - price.cached)),
        unpriced=requests - int(said.sum()),
    )


def _tokens(
    values: np.ndarray[tuple[int], np.dtype[np.float64]], which: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> int:
    return int(values[which].sum())


def _money(*parts: tuple[int, Decimal]) -> Decimal:
    return sum((tokens * price for tokens, price in parts), Decimal(0)) / _MILLION
