"""What several gateways have in common, in Redis or Valkey: one connection that knows when it is away."""
