"""Words that messages of several commands share."""


def counted(count: int, noun: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def unreadable(error: OSError | EOFError) -> str:
    """Which file it was and why, without Python's form of it."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename} cannot be read: {error.strerror}"
    return str(error)
