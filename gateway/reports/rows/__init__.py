"""What follows from each row of the ledger: its class, and the numbers that reports are made of."""
