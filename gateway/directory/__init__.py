"""What several gateways tell each other of replicas' caches, in Redis or Valkey."""
