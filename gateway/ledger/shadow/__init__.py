"""What each engine should have in its cache, going by what it was sent; and why it reused less than that."""

from gateway.ledger.shadow.engine_shadow import ShadowSettings
from gateway.ledger.shadow.predictor import ShadowPredictor

__all__ = ["ShadowPredictor", "ShadowSettings"]
