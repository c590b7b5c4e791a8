"""The commit state machine by hand: events in, effects out, no network."""

from __future__ import annotations

from kv.base.errors import (
    DeadlineExceeded,
    KeyLocked,
    Moved,
    TxnAborted,
    Unavailable,
    UnknownOutcome,
    WriteConflict,
)
from kv.base.limits import PREWRITES_IN_FLIGHT_MAX, TXN_LIFETIME_MS_MAX
from kv.base.methods import ABORTED, COMMITTED, PENDING
from kv.base.ops import put
from kv.base.timestamps import compose
from txn.commit.core import CommitCore, State
from txn.commit.effects import (
    Answered,
    Beat,
    Failed,
    Finish,
    Flip,
    GiveUp,
    Group,
    Grouped,
    OutOfTime,
    Prewrite,
    Prewritten,
    Resolve,
    Rollback,
    TakeTimestamp,
    Timestamp,
    Write,
    Written,
)

START = compose(1_700_000_000_000)
GONE = TxnAborted("gone")


def core(keys: int = 3, *, parallel: bool = False) -> CommitCore:
    """A commit that has been started; in two phases, if it is not told."""
    made = CommitCore(START, [put(b"tab1%d" % i, b"v") for i in range(keys)], parallel=parallel)
    (group,) = made.start()
    assert group == Group(tuple(range(keys)))
    return made


def prewriting(keys: int = 3) -> tuple[CommitCore, list[Prewrite]]:
    """One partition per key, all prewrites on their way."""
    made = core(keys)
    sent = made.step(Grouped(Group(tuple(range(keys))), [(i,) for i in range(keys)]))
    parts = [effect for effect in sent if isinstance(effect, Prewrite)]
    assert len(parts) == len(sent)
    return made, parts


def flipping() -> CommitCore:
    """Two keys, the first flip on its way."""
    made, (a, b) = prewriting(2)
    assert made.step(Prewritten(a, START + 5)) == []
    assert made.step(Prewritten(b, START + 9)) == [TakeTimestamp(START + 9)]
    assert made.step(Timestamp(START + 10)) == [Flip(START + 10)]
    return made


def ended(effects: list[object]) -> object:
    """The outcome among the effects."""
    (finish,) = [effect for effect in effects if isinstance(effect, Finish)]
    return finish.outcome


def test_d2_happy_path() -> None:
    """The order of effects is the protocol: prewrites, timestamp, flip, answer, cleaning."""
    made = flipping()
    done = made.step(Answered(Flip(START + 10), COMMITTED, START + 10))
    assert done == [Finish(START + 10), Resolve(START + 10, (0, 1))]
    assert made.state is State.COMMITTED


def test_one_partition_is_one_entry() -> None:
    """A transaction within one partition must not pay for two phases."""
    made = core()
    assert made.step(Grouped(Group((0, 1, 2)), [(0, 1, 2)])) == [Write(0)]
    assert made.step(Written(START + 3)) == [Finish(START + 3)]


def test_commit_waits_for_keys_that_are_being_regrouped() -> None:
    """While a moved part has no answer yet, the transaction is not prewritten."""
    made, (a, b) = prewriting(2)
    assert made.step(Failed(a, Moved("moved"))) == [Group((0,), 1)]
    assert made.step(Prewritten(b, START + 1)) == []
    assert made.step(Grouped(Group((0,), 1), [(0,)])) == [Prewrite((0,))]
    assert made.step(Prewritten(Prewrite((0,)), START + 2)) == [TakeTimestamp(START + 2)]


def test_cleaning_waits_for_the_last_prewrite() -> None:
    """An intent that arrives behind the cleaner would wait for a reader to remove it; a prewrite
    that waits in a queue would go on waiting for a transaction that is over.
    """
    made, (a, b, c) = prewriting(3)
    refused = WriteConflict("no", details={"key": b"tab10"})
    assert made.step(Failed(a, refused)) == [Rollback()]
    early = Resolve(0, (0, 1, 2))
    assert made.step(Answered(Rollback(), ABORTED, 0)) == [Finish(refused), early]
    assert made.step(Prewritten(b, START + 1)) == []
    assert made.step(Failed(c, Unavailable("late"))) == [Resolve(0, (0, 1, 2))]


def test_prewrites_in_flight_are_bounded() -> None:
    """A large transaction must not send everything at once."""
    made, parts = prewriting(2 * PREWRITES_IN_FLIGHT_MAX)
    assert len(parts) == PREWRITES_IN_FLIGHT_MAX
    assert made.step(Prewritten(parts[0], START + 1)) == [Prewrite((PREWRITES_IN_FLIGHT_MAX,))]


def test_d10_pushed_flip_takes_a_fresh_timestamp() -> None:
    """Below the bound a reader would find a version that it was told does not exist."""
    made = flipping()
    pushed = made.step(Answered(Flip(START + 10), PENDING, 0, START + 77))
    assert pushed == [TakeTimestamp(START + 77)]
    assert made.step(Timestamp(START + 80)) == [Flip(START + 80)]
    done = made.step(Answered(Flip(START + 80), COMMITTED, START + 80))
    assert ended(done) == START + 80


def test_failure_is_certain_again_after_a_refused_flip() -> None:
    """Every copy of a refused flip is refused, so a deadline then is no unknown outcome."""
    made = flipping()
    made.step(Answered(Flip(START + 10), PENDING, 0, START + 77))
    assert isinstance(ended(made.step(OutOfTime())), DeadlineExceeded)


def test_lost_flip_is_sent_again_and_ends_unknown() -> None:
    """Once a flip is on its way, no answer means no knowledge."""
    made = flipping()
    assert made.step(Failed(Flip(START + 10), Unavailable("?"))) == [Flip(START + 10, 1)]
    outcome = ended(made.step(OutOfTime()))
    assert isinstance(outcome, UnknownOutcome)
    assert outcome.details["txn"] == START
    late = made.step(Answered(Flip(START + 10, 1), COMMITTED, START + 10))
    assert late == [], "the caller has its answer"


def test_refused_flip_is_settled_by_the_record() -> None:
    """An error of one flip says nothing of an earlier copy of it."""
    made = flipping()
    made.step(Failed(Flip(START + 10), Unavailable("lost")))
    error = TxnAborted("anchor unknown")
    assert made.step(Failed(Flip(START + 10, 1), error)) == [Rollback()]
    done = made.step(Answered(Rollback(), COMMITTED, START + 10))
    assert ended(done) == START + 10


def test_d6_heartbeat_learns_of_the_rollback() -> None:
    """Going on with what others have rolled back would only waste everybody's time."""
    made, _ = prewriting(2)
    assert made.beating
    assert made.step(Beat(PENDING)) == []
    assert made.step(Beat(ABORTED)) == [Rollback()]
    assert isinstance(ended(made.step(Answered(Rollback(), ABORTED, 0))), TxnAborted)


def test_giving_up_is_possible_until_the_flip() -> None:
    """A caller that goes away undoes what is not decided, and only that."""
    made = core()
    assert made.step(GiveUp(GONE)) == [Finish(GONE)], "nothing was sent"
    made, _ = prewriting(2)
    assert made.step(GiveUp(GONE)) == [Rollback()]
    made = flipping()
    assert made.step(GiveUp(GONE)) == []
    made = core()
    made.step(Grouped(Group((0, 1, 2)), [(0, 1, 2)]))
    assert made.step(GiveUp(GONE)) == [Rollback()]
    assert ended(made.step(Written(START + 3))) == START + 3, "the write was faster"


def test_write_in_doubt_is_settled_by_a_rollback() -> None:
    """The rollback either finds the commit or forbids it; a question could be asked too early."""
    for status, ts in ((COMMITTED, START + 3), (ABORTED, 0)):
        made = core()
        made.step(Grouped(Group((0, 1, 2)), [(0, 1, 2)]))
        assert made.step(Failed(Write(), UnknownOutcome("lost"))) == [Rollback()]
        outcome = ended(made.step(Answered(Rollback(), status, ts)))
        assert outcome == ts if ts else isinstance(outcome, TxnAborted)
    made = core()
    made.step(Grouped(Group((0, 1, 2)), [(0, 1, 2)]))
    made.step(Failed(Write(), UnknownOutcome("lost")))
    assert made.step(Failed(Rollback(), Unavailable("?"))) == [Rollback(1)]
    assert isinstance(ended(made.step(OutOfTime())), UnknownOutcome)


def test_deadline_before_the_flip_raises_the_first_error() -> None:
    """The reason of the abort is what the caller can act on, not that undoing it took long."""
    made, (a, _) = prewriting(2)
    locked = KeyLocked("held", details={"key": b"tab10"})
    assert made.step(Failed(a, locked)) == [Rollback()]
    assert made.step(Failed(Rollback(), Unavailable("?"))) == [Rollback(1)]
    assert ended(made.step(OutOfTime())) is locked


def test_transaction_beyond_its_lifetime_does_not_commit() -> None:
    """`status` calls it aborted by then; committing would make that a lie."""
    made, (a, b) = prewriting(2)
    made.step(Prewritten(a, START + 1))
    made.step(Prewritten(b, START + 1))
    too_late = START + compose(TXN_LIFETIME_MS_MAX + 1)
    assert made.step(Timestamp(too_late)) == [Rollback()]
    outcome = ended(made.step(Answered(Rollback(), ABORTED, 0)))
    assert isinstance(outcome, TxnAborted)
    assert outcome.details["reason"] == "lifetime"
