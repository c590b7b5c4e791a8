"""What users of Python hold: databases, tables, transactions, snapshots, locks and procedures, with
and without `await`."""
