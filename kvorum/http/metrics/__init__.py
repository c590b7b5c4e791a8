"""/metrics: what a node counts, as Prometheus reads it."""
