"""Who sends requests: tenants, their keys, and what each may do."""
