"""`kvgate purge`: a running gateway forgets a tenant."""
