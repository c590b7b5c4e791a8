"""One workload per file: what its clients do, over an `AsyncDatabase`.

A workload holds no clock and no chance of its own (`Client.chance`), so that the simulation runs it
in virtual time. It is driven by `kvorum.verify.run_workload`: `prepare` once, `step` again and
again by each client, and `final` when the faults are over. Values of records are short texts.
"""
