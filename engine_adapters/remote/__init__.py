"""Engines behind HTTP: requests go on as bytes, answers come back as bytes, and what was reused is read on the way."""
