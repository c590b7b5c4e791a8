"""A node among others: links, who is a member, how one joins, and what nodes report to each other
about once a second.

Start: open, listen, enrol (so a node that was decommissioned learns it), reconcile the replicas,
then wait until every leader is known and what they had is applied (`catchup`); /readyz says what is
missing. Stop: the executor, then leaderships are handed over (`handover`), then the store. Who is
master follows from the role at the meta partition; the oracle asks that role's lease for every
timestamp.
"""
