"""Whole tables and whole clusters to files and back, and the check that what is stored agrees with
itself.

    targets.py     what places are called; places.py what is there: a directory, or a URI that
                   pyarrow or fsspec knows
    blocks.py      the files of a backup; manifest.py what makes them one
    backup_scope.py
                   what belongs to a backup, and what becomes of each system table in a restore
    backup.py, restore.py, restore_ranges.py, verify.py
    formats.py, export.py, import_.py, postgresql.py
    check.py, replica_digest.py
    services.py    what the procedures work with; command_worker.py runs them in the process of a
                   command

Every one of these is a procedure, so it is listed, shows its progress, is aborted and goes on
after the death of whoever ran it. Each type is there twice: `kvorum.backup` is run by the nodes
(for places that all of them see), `kvorum.backup_here` by the process of the command that asked
for it (for its own directories). docs/decisions/1113.
"""
