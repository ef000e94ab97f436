"""`kvgate doctor`."""
