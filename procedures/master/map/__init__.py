"""The map and the members: which partitions and nodes there are, what the master knows of them, and
where replicas should be.

    nodes partitions   the two tables; audit: what was done to the members by force
    groups             leaders of groups: how they stand, orders to them; replica_methods: these
                       orders, at the node
    reports liveness   what nodes tell in their beats, and who is silent
    picture            all of this as `balancing` wants it
    placement quiet    where replicas of a partition go; when nobody need be asked
    survival           what is lost when nodes are
"""
