"""`kvgate canon`: one body, and what canon makes of it."""
