"""Python's garbage collector in a process that serves: it stops everything, so it is to look at little, and seldom."""

import gc

# Objects that have come and not gone when it looks; Python's own 700 are those of a few requests.
_YOUNG = 20_000


def keep_what_is_there() -> None:
    """What is loaded by now stays: it need not be looked at again. Takes tenths of a second."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, *gc.get_threshold()[1:])


def let_go() -> None:
    """Before the end, so that native libraries see their objects freed."""
    gc.unfreeze()
