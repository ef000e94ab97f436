"""Where a long text may be cut between two characters: proved at load from the tokenizer's own description."""
