"""The transactional key-value store: storage, versions, partitions, replicas, server and client.

`base` is shared by every package above; `raft` below knows nothing of it.
"""
