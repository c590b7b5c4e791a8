"""One node's copies of partitions: the state machine under each Raft group, and the node's set of
them.

state      the partition's part of the state DB: what is applied
replica    raft.StateMachine over it
manager    create, open all, drop, find
logs       cuts their logs
ranges     which rows of the state DB are a partition's
metakeys   the records of family meta

Snapshots: source (out), sink (in), with chunks (the bytes), staging (beside the live range),
install (in its place) and syncs (when it is durable).
"""
