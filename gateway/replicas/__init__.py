"""The replicas of each engine: which there are, which take requests, which one gets the next."""
