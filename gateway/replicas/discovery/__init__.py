"""Which replicas an engine has at this moment: a list, what a name resolves to, or what Kubernetes says."""
