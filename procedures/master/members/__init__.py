"""Nodes and replicas come, go and are replaced, while their partitions serve.

membership    what all of it promises; adding and removing have the procedures (AddReplica,
              RemoveReplica, Decommission, …)
relocating    one replica moved, one leadership handed over; move_apart: in view of another one
crash         a node is dead for long
moves         what these procedures share
reconcile     at each node: replicas that it lacks, replicas that are nobody's
"""
