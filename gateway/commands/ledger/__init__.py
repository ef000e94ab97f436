"""`kvgate ledger`: what an operator does to the ledger itself."""
