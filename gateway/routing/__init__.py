"""Which replica gets a request: what each should have of its prompt, and what waits there."""
