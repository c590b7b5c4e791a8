"""The machine's own refusals, each worded once. Those of the verbs are in kv.mvcc.refusals."""

from __future__ import annotations

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import (
    Busy,
    DeadlineExceeded,
    InvalidArgument,
    Moved,
    NotLeader,
    TooLarge,
    Unavailable,
    UnknownOutcome,
)
from kv.base.members import Members, leader_details

RETRY_AFTER_MS = 50


def queue_full(d: PartitionDescriptor, what: str, limit: int, actual: int) -> Busy:
    return Busy(
        f"partition {d.id}: {actual} {what} are queued, at most {limit}; "
        "nothing was done. Send again a little later",
        details={
            "what": what,
            "limit": limit,
            "actual": actual,
            "retry_after_ms": RETRY_AFTER_MS,
        },
    )


def not_leader(d: PartitionDescriptor, leader: int | None, members: Members) -> NotLeader:
    where = "none is known" if leader is None else f"ask node {leader}"
    return NotLeader(
        f"partition {d.id}: this node does not lead it ({where})",
        details=leader_details(leader, members),
    )


def moved(d: PartitionDescriptor, epoch: object) -> Moved:
    return Moved(
        f"partition {d.id} has epoch {d.epoch} and serves [{d.start[:32]!r}, {d.end[:32]!r}); the "
        f"request was for epoch {epoch!r:.20} or other keys. Look the key up again",
        details={"descriptor": d.to_wire()},
    )


def shape_under_way(d: PartitionDescriptor) -> Busy:
    return Busy(
        f"partition {d.id} is being split or merged already; ask again in a moment",
        details={"what": "reshaping", "retry_after_ms": RETRY_AFTER_MS},
    )


def too_late(late_s: float) -> DeadlineExceeded:
    return DeadlineExceeded(
        f"the request's time was over {late_s * 1000:.0f} ms before its turn came; "
        "it was not executed. Send again with more time, or less at once"
    )


def unknown_outcome(d: PartitionDescriptor) -> UnknownOutcome:
    return UnknownOutcome(
        f"partition {d.id}: leadership was lost before the command was confirmed; "
        "it may or may not be executed. Ask for its status, or read the keys"
    )


def future_read(read_ts: int, now: int) -> InvalidArgument:
    return InvalidArgument(
        f"read timestamp {read_ts} lies in the future (now {now}); "
        "read at a timestamp that the oracle has handed out, or at 0 for the newest",
        details={"at": read_ts, "now": now},
    )


def future_claim(claim: int, now: int) -> InvalidArgument:
    return InvalidArgument(
        f"timestamp {claim} lies in the future (now {now}), so that no transaction has it; nothing "
        "was done. Use timestamps that the oracle has handed out",
        details={"at": claim, "now": now},
    )


def oracle_behind(first: int, floor: int, *, hybrid: bool) -> Unavailable:
    return Unavailable(
        f"the next timestamp is {first}, but {floor} may be in use already; nothing was done: ask "
        "again in a moment",
        code="CLOCK_BEHIND" if hybrid else None,
        details={"first": first, "floor": floor},
    )


def entry_too_large(size: int, limit: int) -> TooLarge:
    return TooLarge(
        f"the command needs {size} bytes in the log, at most {limit}; nothing was done. Split it",
        details={"what": "log entry bytes", "limit": limit, "actual": size},
    )
