"""The notification bus: the master sends an operation to a set of nodes or workers and waits for
each of them.

    procedure (phases.py: one phase, two)       what is wanted and what is known, durable
      └─ core.py (pure)                         answers in; done, failed or still waiting out
      └─ courier.py ── outbox.py (pure)         at the master: what is sent to whom, and when again
            ║  BUS_ORDERS pushed, or in the answer of a heartbeat, or asked for by BUS_REPORTS
      └─ handlers.py ──── receiver.py (pure)       at each target: what it works on, what it answers

What may be relied on:
- only the procedure's record is durable. A target keeps nothing over a restart: it is sent the
  order again, and whoever carries out an order makes it idempotent by the operation's id (N2);
- nothing is sent to a target before the record that names it is committed: so whoever may have
  been asked to do something is asked to take it back;
- an answer counts only for the verb and the round that it answers: late, doubled and reordered ones
  change nothing;
- of a two-phase operation nobody commits unless all have staged, and once one may have committed,
  all do: the decision is the procedure's point of no return.

Source: HBASE-13439, the design note "Procedure v2 / Notification-Bus". Decisions: 0411, 0412.
"""
