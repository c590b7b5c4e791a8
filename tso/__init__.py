"""The timestamp oracle: strictly increasing 64-bit timestamps with a durable bound.

    oracle   leases       pure: timestamps below the bound; the safepoint and what holds it back
    service  safepoint    the same at the leader of the meta partition, durable in its log
    client   node         who asks: any client; a node, for its clients and its partitions
    detour                through another node, for whom the oracle does not hear

    hybrid                pure: a node's own clock, in clusters that have no oracle
    hybrid_node           in the places of node and service

A timestamp is asked for after its caller asked, never before: so it is above every one that was
given out earlier, and no read or commit can slip below another one's snapshot.
"""
