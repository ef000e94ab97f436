"""`kvgate bench gateway`: what the gateway costs a request and a chunk, against a bare relay and LiteLLM's proxy."""
