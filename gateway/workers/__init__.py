"""A server of several processes: one that starts and watches the others, workers, the engine, and what they share."""
