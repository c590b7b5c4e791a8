"""Procedures without a cluster: a store that is a directory of append-only logs.

format.py (bytes) ← disk.py (files) ← replay.py (reads all logs) → image.py, rows.py (what is true
now, in memory); tracker.py, logs.py (which log is still needed); journal.py (batches, syncs, rolls)
→ store.py (the ProcedureStore) → embedded.py (an executor over it), dump.py (looks, changes
nothing). docs/guides/embedded-procedures.md, docs/decisions/0415, 0416.
"""
