"""From sampled token ids to the events a client gets."""
