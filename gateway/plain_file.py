"""Small files that are read while requests run."""

import errno
import os
import stat
from pathlib import Path


def read_plain(file: Path, most: int) -> bytes:
    """The first `most` + 1 bytes; links are followed.

    Raises:
        OSError: it cannot be read, or is no plain file. A pipe would be waited for, maybe for ever.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no plain file", str(file))
        return opened.read(most + 1)
