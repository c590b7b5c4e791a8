"""One node's copies of partitions: the state machine under each Raft group, and the node's set of
them.

state      the partition's part of the state DB: what is applied
replica    raft.StateMachine over it
manager    create, open all, drop, find; cuts the logs
metakeys   the records of family meta
"""
