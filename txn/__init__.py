"""Transactions, in the client: snapshot reads, buffered writes, and their commit.

    client ─┬─ autocommit     single operations and batches, without a transaction
            └─ transaction    reads, writes that are kept, and their end
                 reading      at one timestamp, over any number of partitions; the feed of changes
                 buffered     what is kept until the commit: writes (memory, file), reads
                 commit       coordinator ─ shell of the core (pure) ─ sending
                 bulk         what does not fit in memory
            intents           of others: found on the way, found by nobody, or waited for
            shared            what all of them use

A transaction's id is its start_ts. Its status record lies at the *anchor*, the key of its first
write; from the id alone it is found by a row of family gcq, whose due time is a fixed distance from
start_ts (kv/client/find.py). A commit in doubt is settled by that record (docs/decisions/0301).
"""
