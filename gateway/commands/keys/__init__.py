"""`kvgate keys`: keys of tenants."""
