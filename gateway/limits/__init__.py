"""What each tenant may use: requests, tokens, requests at once, bodies, hints; and whose turn it is at full engines."""
