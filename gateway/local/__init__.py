"""Engines that answer without HTTP: a body becomes engine requests, and their events an answer."""
