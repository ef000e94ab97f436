"""The HTTP surface: its paths, and what becomes of a request between its first byte and its row of the ledger."""
