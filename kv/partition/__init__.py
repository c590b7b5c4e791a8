"""One partition's write path and reads, without I/O: what HBase calls the region's MVCC, with a
Raft log as its WAL.

    queue → drain → evaluate → open batch → seal → (log, sync, commit) → apply → read point → reply

    machine     the one door: requests in, log entries and replies out; owns the order of everything
    reader evaluator flight    its parts: reads, commands, entries on their way
    replies     how all of them answer
    scheduler   one drain per pass of the event loop over all partitions that have requests
    requests    what a request must look like (bad input is refused before anything is looked at);
                request_writes: those that write rows
    admission   late, misplaced and malformed requests are answered first
    internal    commands of the node's own services: its records, the collector
    answers     the machine's own refusals
    reads writes    the two halves of the method table: applied state only, and evaluated state
    evaluated   what commands decide on: applied + in flight
    entry       the batch that fills, its bytes in the log, and who waits for it
    locks       intents of the applied state, in memory and in order
    waits       writes that met an intent wait here; waiter: one of them
    shapes      entries that change its range, or whether it serves; reshaping: their way through
    parts       PARTS, from samples of what was written (sizes); statistics, counters: other figures
    recorded    which transactions have no record here, known without looking
    timestamps  of commits, from an oracle here or elsewhere
    read_point  advances over the contiguous prefix of applied entries

Timing of one entry (E2 fills while E1 is in the disk's hands):

    drain   E1 sealed ─ propose ─▶ log ── sync ──▶ applied: read point, E2 sealed ── sync ──▶ …
    drain          E2 fills ───────────────────▶                 replies of E1 (disk at work)

Latches are the synchronous step itself: a command takes all its keys at once because nothing else
runs, and they are free for the next command as soon as its rows are in the open batch, long before
they are durable. The next writer of a row builds on the version in flight; readers do not see it.
"""
