"""The node's side of the native protocol: sockets, dispatch to partitions and handlers,
validation, counters.
"""
