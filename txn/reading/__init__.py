"""Reads at one timestamp over any number of partitions, and the feed of what changes."""
