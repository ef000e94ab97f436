"""One serving process: its socket, its life from start to drain, and who works beside it."""
