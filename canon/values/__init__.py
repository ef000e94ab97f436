"""Values of the moment, the session and the user: what they look like, in whatever form and language."""

from canon.values.differences import classify
from canon.values.items import Item, item_of
from canon.values.screen import may_hold_item

__all__ = ["Item", "classify", "item_of", "may_hold_item"]
