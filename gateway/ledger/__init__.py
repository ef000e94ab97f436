"""One row a request: what was reused, who said so, and what is not known."""
