"""The configuration file: what may stand in it, and errors that name the key."""
