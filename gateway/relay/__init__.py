"""Requests for engines behind HTTP: canonical bytes on, bytes back as they come, and an account of each."""
