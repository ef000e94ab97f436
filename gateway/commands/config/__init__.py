"""`kvgate config`: check a file, show what counts, describe what may stand in it."""
