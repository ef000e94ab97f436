"""Values of the moment, the session and the user: what they look like, in whatever form and language."""

from canon.values.items import Item, item_of, may_hold_item

__all__ = ["Item", "item_of", "may_hold_item"]
