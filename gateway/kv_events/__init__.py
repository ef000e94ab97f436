"""Following what replicas publish of their caches. Needs the extra `events`."""
