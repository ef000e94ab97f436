"""What operators ask a running gateway, on a port and with a key of its own."""
