"""`kvorum verify`: run a workload on a real cluster, hurt the cluster, and check what was seen.

`history.py` is what happened, `workloads/` makes it happen, `checkers/` judge it (pure functions),
`nemesis.py` hurts a local cluster meanwhile. The workloads know no clock and no chance of their
own, so the simulation runs the very same code in virtual time.
"""
