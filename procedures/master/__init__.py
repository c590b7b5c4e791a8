"""The master's work on partitions and nodes.

partitions       the map, and making a table's partitions
nodes            the members table: ids, addresses, states
membership       the procedures that move replicas: adding, removing; moves is what they share
replica_methods  what a node shows of its replicas, and the orders it takes for groups it leads
groups           orders to leaders, and their views, wherever they are
reconcile        each node's replicas against the map
balance          leaderships to where they belong
"""
