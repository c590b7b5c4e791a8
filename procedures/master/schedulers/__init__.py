"""The timed schedulers of the master: they move replicas and leaders as `balancing` decides, and
explain it."""
