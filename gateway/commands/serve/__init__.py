"""`kvgate serve`."""
