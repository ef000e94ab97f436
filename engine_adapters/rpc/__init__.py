"""Calls, streams and messages between processes of one server, over Unix sockets."""
