"""Transactions, in the client: snapshot reads, buffered writes, and their commit.

    client ── writes              single operations and batches, without a transaction
       ├───── reader              reads at one timestamp, over any number of partitions
       └───── transaction ── buffer (spill), readset
                 └─ coordinator ─┬─ small       the usual commit over several partitions
                                 ├─ commit      the shell of core (pure), over sending
                                 └─ large, bulk, loading     what does not fit in memory

    resolver recovery sweeper     intents of others: found on the way, or found by nobody
    waits deadlock                who waits for whom
    feed                          the transactions of a range, in commit order

A transaction's id is its start_ts. Its status record lies at the *anchor*, the key of its first
write; from the id alone it is found by a row of family gcq, whose due time is a fixed distance from
start_ts (kv/client/find.py). A commit in doubt is settled by that record (docs/decisions/0301).
"""
