"""One interface over every engine kvgate talks to, and one schema for what each says it reused."""
