"""The durable procedure engine. Knows no partitions and no tables by name; what it needs of them is
injected.

    registry procedure context    what authors write with: declarations, outcomes, `ctx`
    workflow flow calls journal   procedures as functions; what their calls gave (pure: journal)
    records core retries          the durable record, and the rules (pure)
    store                         what is needed of a store; kv_store, memory_store
    executor ── roster            what is live, waits and wakes
        ├────── scheduler         who is next, and who may: queues, locks, resources (pure)
        └────── turn ── runner    decide, call the method, commit
    grants steal lock_procedure   locks as rows, taken away, and for code outside of procedures
    surgeon surgery audit explain what operators do to what hangs
    submission forget             how a record begins, and when it goes
    outside_events lookout        signals, completions, progress; those that came meanwhile
    early_steps                   first steps before their submission is durable
    queries plain typed view      arguments and results: data, types; a record as others see it
    service client                PROC_* at the node, and who calls them

Invariants
  * a step's new record, its writes and its children are one transaction, fenced by the version of
    the record's row: a step commits at most once, whoever runs it;
  * after an unknown outcome the store is asked, never guessed;
  * a grant of a lock is durable before the first step under it, and checked against the executor's
    reign (docs/decisions/0403);
  * waking is in memory: who waits for a signal or a completion looks first, in the transaction that
    says that it waits (docs/decisions/0423);
  * a child's end is in its own record only (docs/decisions/0401).
"""
