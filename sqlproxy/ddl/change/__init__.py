"""Online schema change (F1): tables change while everybody reads and writes them.

    CREATE INDEX     absent → delete-only → write-only → (backfill) → public     `indexes`

A change is a procedure that moves a table from one version of its descriptor to the next, one state
step each, and waits in between until nobody uses the version before the last (`states`). So at most
two adjacent versions are in use at any time, and each pair of neighbours is harmless:

    delete-only   entries are removed with their rows, none is added
    write-only    entries are added, too; nobody reads them
    public        they are read

    adding columns retyping      ADD, DROP COLUMN, TYPE with new values; filling, slices: old rows
    indexes backfill             CREATE INDEX, and its entries of old rows
    constraints enum_types parts altering
                                 of rows that are there; enums; several at once; the descriptor only
    states settled               what the steps share; waiting until all know the new version
    waiting jobs meaning         for who asked; as the catalog shows it; whether conditions stay
    registering                  all of them, for a node's registry

Source: Rae et al., Online, Asynchronous Schema Change in F1 (VLDB 2013), sections 3 and 4.
"""
