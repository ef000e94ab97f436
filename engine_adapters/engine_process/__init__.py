"""One engine in a process of its own, which several gateway processes reach over a Unix socket."""
