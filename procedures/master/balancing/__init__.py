"""Where replicas and leaderships should be: pure decisions about a picture of the cluster.

    model.py       the picture: nodes, partitions, dimensions (immutable), moves, refusals
    prediction.py  what one unit of traffic, and so a replica, costs at each machine
    cluster.py     the same picture while moves are tried: loads, orders, zones, kept up to date
    rules.py       may this replica go there: tags, failure domains, room, higher dimensions
    replicas.py    the balancer of replicas: which move next
    leaders.py     the balancer of leaderships
    placing.py     the placement: what must move whatever it weighs
    simulate.py    `python -m procedures.master.balancing.simulate`

Nothing here asks a clock, a node or chance: the same picture gives the same moves. The loops that
make pictures and submit procedures are in procedures/master/schedulers (schedule.py). Why it is as
it is: docs/decisions/0409; for users: docs/guides/balancing.md.
"""
