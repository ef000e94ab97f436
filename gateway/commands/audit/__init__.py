"""`kvgate audit`."""
