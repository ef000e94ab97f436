"""Responses that engines keep: whose they are, where they are, and the routes to them."""
