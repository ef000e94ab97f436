"""What reports refuse.

ReportError
└── DoctorError   the engine cannot be examined at all: it does not answer, or refuses a plain request
"""


class ReportError(Exception):
    """Root of everything the reports raise on purpose; the message says what to do."""


class DoctorError(ReportError):
    """The engine gave no answer that anything could be learnt from."""
