"""What an error of the store means for the changes of a transaction."""

from __future__ import annotations

from collections.abc import Sequence

from kv.base.errors import ConditionFailed, KvorumError
from sqlproxy.tables.writing import Outcome
from sqlproxy.values.errors import SqlError, from_store


def refused(error: KvorumError, outcomes: Sequence[Outcome]) -> SqlError:
    """That a key was to be absent, and is not at the commit, is a duplicate key (23505); that it
    was to be as it was read is a conflict.
    """
    if not isinstance(error, ConditionFailed):
        return from_store(error)
    key = error.details.get("key")
    new = error.details.get("wanted", "0") == "0"
    if isinstance(key, bytes) and new and not runs_again(error, outcomes):
        found = violated(key, outcomes)
        if found is not None:
            return found
    return SqlError(
        "40001",
        "could not serialize access due to concurrent update",
        detail=error.message,
        hint="Run the whole transaction again.",
    )


def violated(key: bytes, outcomes: Sequence[Outcome]) -> SqlError | None:
    """What it means for these changes that somebody else has the key."""
    writers = (writer for outcome in outcomes for writer in outcome.writers)
    return next((found for one in writers if (found := one.violated(key)) is not None), None)


def runs_again(error: KvorumError, outcomes: Sequence[Outcome]) -> bool:
    """Whether a refused condition only says that somebody was faster than ON CONFLICT."""
    return isinstance(error, ConditionFailed) and any(outcome.again for outcome in outcomes)
