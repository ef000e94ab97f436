"""What can go wrong with the ledger, as one small tree. No message ever has a password in it.

LedgerError
├── LedgerConfigError       what an operator set cannot work: a URL, a file, a package that is missing
├── LedgerSchemaError       the database was written by a newer kvgate
└── LedgerUnavailableError  the database does not answer now
"""


class LedgerError(Exception):
    """Root of everything the ledger raises on purpose."""


class LedgerConfigError(LedgerError):
    """What was set cannot work; the message says what to set instead."""


class LedgerSchemaError(LedgerError):
    """The database has a schema this version does not know."""


class LedgerUnavailableError(LedgerError):
    """The database cannot be reached, or refuses to work, now."""
