"""Another configuration while requests run."""
