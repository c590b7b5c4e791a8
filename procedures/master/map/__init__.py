"""The map and the members: which partitions and nodes there are, what the master knows of them, and
where replicas should be."""
