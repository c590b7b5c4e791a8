"""The master's work on partitions and nodes.

balancing    where replicas and leaderships should be: pure decisions
map          the map, the members, what the master knows of them, and orders to leaders
members      nodes and replicas come, go and are replaced
shape        partitions are split and merged
schedulers   the timers that move replicas and leaderships
"""
