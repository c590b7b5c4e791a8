"""Definitions as procedures: what creates, changes and drops what the catalog has.

ddl           namespaces and tables: Create…, Drop…
switching     Disable…, Enable…, Modify…
placing       kvorum.place_table: replicas and tags
surviving     kvorum.explain_loss, kvorum.explain_table: what is lost when nodes are
emptying      TruncateTable, DropIndex
ddl_objects   views, sequences, renames
moving        SET SCHEMA
private       the same for what only one session has
change        what is changed while everybody reads and writes: columns, indexes, constraints,
              enums

declaring resolve_declaration    what SQL declares → arguments → descriptors
steps         what all of them are put together from: arguments, locks, the catalog's
              transaction, partitions made and dropped
"""
