"""One schema for what engines say they reused: readers of usage payloads, one profile an engine or API."""
