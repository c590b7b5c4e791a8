"""Versions, intents and transaction records: the rules of snapshot isolation as pure functions.

One verb per file. A verb reads through a view (`view.py`), gets its timestamps and the time as
arguments, and either adds its effects to a `Mutations` or raises an error of `kv.base.errors` and
adds nothing. Nothing here waits, reads a clock or knows a disk.

    records     the bytes of cur, hist, lock, txn and gcq (on disk: never change one in place)
    guards      the same of guard, and the table of them: what serializable transactions have read
    get scan    reads at a timestamp
    packed prewrite_rows    many rows as two pieces of bytes; one intent over them
    write       a whole transaction in one step (1PC): the hot path; write_rows: of many plain puts
    ingest      puts as of a snapshot in the past, where nothing newer is: entries of a new index
    prewrite commit rollback resolve heartbeat
                the two-phase way (Percolator, Peng and Dabek, OSDI 2010, with TiDB's pushes)
    share       shared row locks
    validate    what a serializable transaction read still holds when it commits, and why that is
                enough
    check       what has become of a transaction; rolls the abandoned back
    recover     the same for a parallel commit: exactly one outcome, and why
    gc          forgets what no reader at or above the safepoint can see
    refusals    the errors of all verbs, each worded once
    find        from a transaction's id to its anchor

Invariants
  * a key has at most one newest version (`cur`) and at most one intent (`lock`); versions of a key
    have rising timestamps, in the order in which they are written;
  * `superseded_ts` of an old version is the commit timestamp of its successor, so an old version
    alone says when it was visible;
  * a transaction that has a record also has its row in gcq, so that a record is never forgotten by
    the collector;
  * nothing reads below the safepoint, and no transaction from below it writes.

Deliberately missing: latches and the order of commands (kv.partition owns them), timestamps (tso),
waiting for locks (the client).
"""
