"""The durable procedure engine. Knows no partitions and no tables by name; what it needs of them is
injected.
"""
