"""What one call has been through, and the error that its caller gets.

*Doubt* stays: once a write went out and its fate was not learnt, no later refusal can prove that
nothing was done, so a call in doubt that runs out of time ends as UNKNOWN_OUTCOME.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kv.base.errors import (
    Busy,
    DeadlineExceeded,
    InvalidArgument,
    KvorumError,
    Moved,
    NotLeader,
    Reroute,
    Unavailable,
    UnknownOutcome,
)
from kv.base.limits import (
    DEADLINE_MS_MAX,
    REROUTE_WAIT_MS_MAX,
    RETRY_WAIT_MS_FIRST,
    RETRY_WAIT_MS_MAX,
)
from kv.base.verbs import VERBS
from kv.base.wire_row import WireRow
from kv.client.links import LinkExpired, LinkLost
from kv.client.router import Location

# codes of Unavailable that another attempt may cure: kv.server.dispatcher when it closes,
# kv.client.connection, tso.oracle (the node slept, or its clock went ahead: for a sync or two),
# tso.node (the oracle's leader changes), procedures.engine (so does the master)
STOPPING: Final = "STOPPING"
UNREACHABLE: Final = "UNREACHABLE"
PASSING: Final = frozenset(
    {STOPPING, UNREACHABLE, "TSO_BOUND", "NO_ORACLE", "DEPOSED"}
    | {"CLOCK_DOUBT", "CLOCK_AHEAD", "CLOCK_BEHIND"}
)
# … and those that say that this node is of no use
GONE: Final = frozenset({STOPPING, UNREACHABLE, "CLOCK_DOUBT"})
CUT_OFF: Final = (
    "CUT_OFF"  # `KvClient`: whose client this is hears nobody; asking again is of no use
)
NO_PARTITION: Final = "NO_PARTITION"  # kv.server.dispatcher: the node has none with this key
_ELSEWHERE: Final = GONE | {NO_PARTITION}
_NOTHING_DONE: Final = (Moved, NotLeader, Busy, Unavailable, DeadlineExceeded)


class Started(NamedTuple):
    """A call's first attempt, sent. `reply` ends as `Link.send` says; if it fails, `KvClient.go_on`
    does what `call` would have done.
    """

    reply: asyncio.Future[WireRow]
    method: int
    key: bytes
    args: tuple[Any, ...]
    budget_ms: int
    deadline: float
    location: Location


class Call:
    """One call of a KvClient, over all its attempts."""

    __slots__ = (
        "args",
        "attempts",
        "deadline",
        "doubt",
        "last",
        "method",
        "not_before",
        "repeatable",
        "verb",
    )

    def __init__(self, method: int, deadline: float, args: Sequence[object] = ()) -> None:
        self.method = method
        self.args = args
        self.verb = VERBS[method]
        self.repeatable = self.verb.may_repeat(args)
        self.deadline = deadline
        self.attempts = 0
        self.doubt = False
        self.last: BaseException | None = None
        self.not_before = 0.0  # the peer asked for a pause of this many seconds

    def failed(self, error: BaseException) -> None:
        """Remember a failed attempt.

        Raises what the caller must see if there is no point in another one.
        """
        self.attempts += 1
        self.last = error
        self.not_before = 0.0
        match error:
            case LinkLost() if error.sent:
                if not self.repeatable:
                    raise UnknownOutcome(
                        f"the reply was lost, it may or may not have been done: {error.reason}"
                    ) from error
                self.doubt = self.doubt or not self.verb.asks(self.args)
            case LinkExpired():
                self.doubt = self.doubt or (error.sent and not self.verb.asks(self.args))
                raise self.out_of_time() from error
            case UnknownOutcome():  # its leader was deposed while it was in the log
                if not self.repeatable:
                    raise error
                self.doubt = self.doubt or not self.verb.asks(self.args)
            case Busy():
                self.not_before = float(error.details.get("retry_after_ms", 0)) / 1000
            case Unavailable() if error.code not in PASSING:
                raise error
            case _:
                pass

    def pause_s(self, random: float) -> float:
        """How long to wait before the next attempt: not at all after the first reroute. `random` in
        [0, 1) keeps callers that failed together from asking again together.
        """
        pause = self.not_before
        rerouted = isinstance(self.last, Reroute | LinkLost | OSError | UnknownOutcome) or (
            isinstance(self.last, Unavailable) and self.last.code in _ELSEWHERE
        )
        if self.attempts > 1 or not isinstance(self.last, Reroute | LinkLost):
            # Whoever looks for a leader looks often: an election takes about a second.
            most = REROUTE_WAIT_MS_MAX if rerouted else RETRY_WAIT_MS_MAX
            doubled = min(RETRY_WAIT_MS_FIRST << min(self.attempts, 16), most)
            pause += doubled * (0.5 + random / 2) / 1000
        return pause

    def final(self, error: KvorumError) -> KvorumError:
        """The error for the caller: "nothing was done" only if no attempt is in doubt."""
        if self.doubt and isinstance(error, _NOTHING_DONE):
            return UnknownOutcome(
                f"a reply was lost, it may or may not have been done: {error.message}"
            )
        return error

    def out_of_time(self) -> KvorumError:
        """The error of a call that ran out of time, as far as it is known what became of it."""
        why = "" if self.last is None or isinstance(self.last, LinkExpired) else f": {self.last}"
        tried = f" after {self.attempts} attempts" if self.attempts > 1 else ""
        if self.doubt:
            return UnknownOutcome(
                f"no reply within the deadline{tried}, it may or may not have been done{why}"
            )
        if isinstance(self.last, Busy):
            return self.last
        return DeadlineExceeded(f"not done within the deadline{tried}{why}")

    def left_ms(self, now: float) -> int:
        """What is left of its time. Raises its last error if that is nothing."""
        left_s = self.deadline - now
        if left_s <= 0:
            raise self.out_of_time()
        return max(1, int(left_s * 1000))


def started(method: int, budget_ms: int, deadline: float, args: Sequence[object] = ()) -> Call:
    """A call that begins; `args` of a node method. Raises InvalidArgument."""
    if not 0 < budget_ms <= DEADLINE_MS_MAX:
        raise InvalidArgument(f"budget_ms must be in 0 … {DEADLINE_MS_MAX}, got {budget_ms}")
    return Call(method, deadline, args)
