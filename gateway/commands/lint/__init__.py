"""`kvgate lint`: what breaks the prefixes of a request log."""
