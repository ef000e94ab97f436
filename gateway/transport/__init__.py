"""Bytes in and out: bodies, disconnects, server-sent events, ids and the access log."""
