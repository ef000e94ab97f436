"""Tiers outside the device: what they do, and the ones there are."""
