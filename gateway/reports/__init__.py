"""What is said of reuse, and whether it can be true: the audit over the ledger, and the doctor at a live engine."""
