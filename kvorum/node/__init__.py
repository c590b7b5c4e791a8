"""One node, put together: its store, its doors, its upkeep, and the procedures that it offers.

`node.build(config, ports)` is the wiring, and `ports` all that a node takes from its machine. A
stopped node lets go of its databases even if a user keeps the `Database` over it.
"""
