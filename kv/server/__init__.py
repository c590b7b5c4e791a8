"""The node's side of the native protocol: sockets, dispatch to partitions and handlers,
counters. What a request must look like, its declaration says (kv/base/verbs.py).

    socket_server     bytes ↔ frames, and how much of one connection is taken at a time
    express           connections that ask for timestamps only are heard between slices of work
    dispatcher        a request to its partition's machine, or to the handler of a node method
    tap               the same requests, for the log of stamps
"""
