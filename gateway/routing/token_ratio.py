"""How many tokens four bytes of a prompt are, learned from what engines count."""

from collections import OrderedDict

_MOST = 1_000  # scopes
_NEW = 0.2  # weight of a new prompt


class TokenRatios:
    """By scope; 1 where nothing was learned."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, float] = OrderedDict()

    def of(self, scope: str) -> float:
        """Real tokens to estimated ones."""
        return self._of.get(scope, 1.0)

    def saw(self, scope: str, estimated: int, real: int) -> None:
        """An engine counted `real` tokens in a prompt."""
        if estimated <= 0 or real <= 0:
            return
        ratio = real / estimated
        known = self._of.pop(scope, ratio)
        self._of[scope] = known + _NEW * (ratio - known)
        if len(self._of) > _MOST:
            self._of.popitem(last=False)
