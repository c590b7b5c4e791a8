"""Nodes and replicas come, go and are replaced, while their partitions serve."""
