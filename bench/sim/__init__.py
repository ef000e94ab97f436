"""Simulations over traces of real traffic."""
