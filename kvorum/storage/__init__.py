"""The key-value part of a node: its databases and partitions, their garbage, and who waits for
whom."""
