"""The commit machine of a parallel commit by hand: events in, effects out, no network (D13)."""

from __future__ import annotations

import pytest

from kv.base.disk_space import DISK_FREE
from kv.base.errors import (
    DeadlineExceeded,
    Moved,
    TxnAborted,
    Unavailable,
    UnknownOutcome,
    WriteConflict,
)
from kv.base.limits import (
    FLIPS_MAX,
    PARALLEL_KEY_BYTES_MAX,
    PARALLEL_KEYS_MAX,
    PARALLEL_PARTS_MAX,
    TXN_LIFETIME_MS_MAX,
)
from kv.base.methods import ABORTED, COMMITTED, OP_READ, PENDING
from kv.base.ops import Op, put
from kv.base.timestamps import compose
from kv.client.calls import NO_PARTITION
from tests.txn.test_txn_core import START, core, ended
from txn.commit.core import _NOWHERE_TRIES, CommitCore, State
from txn.commit.effects import (
    Answered,
    Beat,
    Effect,
    Failed,
    Finish,
    Flip,
    GiveUp,
    Group,
    Grouped,
    Heartbeat,
    OutOfTime,
    Prewrite,
    Prewritten,
    Resolve,
    Rollback,
    TakeTimestamp,
    Timestamp,
)

LOST = Unavailable("lost")


def staged(keys: int = 2) -> tuple[CommitCore, list[Prewrite]]:
    """One partition per key, all prewrites on their way."""
    made = core(keys, parallel=True)
    sent = made.step(Grouped(Group(tuple(range(keys))), [(i,) for i in range(keys)]))
    assert len(made.stage) == keys
    return made, [effect for effect in sent if isinstance(effect, Prewrite)]


def implied() -> CommitCore:
    """Answered by its intents; the flip is on its way."""
    made, (a, b) = staged()
    assert made.step(Prewritten(a, START + 9, exact=True)) == []
    done = made.step(Prewritten(b, START + 5, exact=True))
    assert done == [Finish(START + 9), Flip(START + 9)], "answered first, at the highest bound"
    return made


def test_d13_what_is_known_begins_as_what_is_asked_for() -> None:
    """A short way that the machine does not follow would be a second protocol."""
    asked, sent = staged()
    known = CommitCore(START, asked.ops)
    assert known.start_staged([(0,), (1,)], asked.stage) == sent
    for prewrite, low in zip(sent, (START + 9, START + 5), strict=True):
        answered = known.prewritten(prewrite.indexes, low, exact=True)
        assert answered == asked.step(Prewritten(prewrite, low, exact=True))
    for event in (OutOfTime(), Answered(Flip(START + 9), COMMITTED, START + 9)):
        assert known.step(event) == asked.step(event)
    assert (known.state, known.laid) == (asked.state, asked.laid)
    assert core(1).step(Grouped(Group((0,)), [(0,)])) == core(1).start_in_one()


def test_of_a_streamed_commit_nothing_is_sent_again() -> None:
    """Rows that have gone by cannot be sent twice, and its messages took as long as they may."""
    made = CommitCore(START, [put(b"tab1a", b"v")], streamed=True)
    (prewrite,) = made.start()
    assert prewrite == Prewrite((0,))
    for lost in (LOST, Moved("split"), UnknownOutcome("broken")):
        made = CommitCore(START, [put(b"tab1a", b"v")], streamed=True)
        made.start()
        assert made.step(Failed(Prewrite((0,)), lost)) == [Rollback()]
        assert made.step(Failed(Rollback(), LOST)) == [Finish(lost), Resolve(0, (0,))]
    made = CommitCore(START, [put(b"tab1a", b"v")], streamed=True)
    made.start()
    assert made.step(Prewritten(Prewrite((0,)), START + 7)) == [TakeTimestamp(START + 7)]
    assert made.step(Timestamp(START + 8)) == [Flip(START + 8)]
    assert made.step(Failed(Flip(START + 8), LOST)) == [Rollback()], "the record knows"
    (unknown,) = made.step(Failed(Rollback(), LOST))
    assert isinstance(ended([unknown]), UnknownOutcome)


def test_d13_answered_by_the_intents_flipped_behind() -> None:
    """The order of effects is the protocol: nothing is resolved before the record says it."""
    made = implied()
    assert made.state is State.IMPLIED
    assert made.step(Answered(Flip(START + 9), COMMITTED, START + 9)) == [
        Resolve(START + 9, (0, 1))
    ]
    assert made.state is State.COMMITTED


def test_d13_after_the_answer_only_the_flip_is_sent() -> None:
    """A rollback or a heartbeat behind an acknowledged commit could undo it."""
    made = implied()
    for event in (GiveUp(TxnAborted("gone")), OutOfTime(), Beat(PENDING), Beat(ABORTED)):
        assert made.step(event) == []
    assert made.beat() == []
    assert made.step(Failed(Flip(START + 9), LOST)) == [Flip(START + 9, 1)]
    assert made.step(Failed(Flip(START + 9, FLIPS_MAX), LOST)) == [], "others recover it"
    assert made.state is State.COMMITTED


def test_d13_a_record_that_contradicts_the_answer_is_a_bug() -> None:
    """To go on quietly would hide that an acknowledged transaction was lost."""
    for status, ts in ((ABORTED, 0), (COMMITTED, START + 10), (PENDING, 0)):
        with pytest.raises(AssertionError):
            implied().step(Answered(Flip(START + 9), status, ts))


def test_d13_a_bound_that_is_not_exact_takes_the_usual_way() -> None:
    """Others would commit it elsewhere than at the timestamp that the coordinator tells."""
    made, (a, b) = staged()
    made.step(Prewritten(a, START + 5, exact=False))
    assert made.step(Prewritten(b, START + 9, exact=True)) == [TakeTimestamp(START + 9)]
    assert made.step(Timestamp(START + 12)) == [Flip(START + 12)]
    done = made.step(Answered(Flip(START + 12), COMMITTED, START + 9))
    assert ended(done) == START + 9, "somebody was faster: the record decides"


def test_d13_a_heartbeat_ends_the_early_answer() -> None:
    """It takes STAGING back, so the intents alone commit nothing any more."""
    made, (a, b) = staged()
    assert made.step(Prewritten(a, START + 5, exact=True)) == []
    assert made.beat() == [Heartbeat()]
    assert made.step(Prewritten(b, START + 9, exact=True)) == [TakeTimestamp(START + 9)]


def test_d13_staged_after_a_heartbeat_is_taken_back() -> None:
    """The record would stay STAGING while its coordinator waits, and be recovered under it."""
    made, (a, _) = staged()
    assert made.beat() == [Heartbeat()]
    assert made.step(Prewritten(a, START + 5, exact=True)) == [Heartbeat()]


def test_d13_a_part_that_moved_is_still_part_of_it() -> None:
    """Keys count, not how they were distributed: a split must not cost the parallel commit."""
    made = core(3, parallel=True)
    a, b = made.step(Grouped(Group((0, 1, 2)), [(0,), (1, 2)]))
    assert made.step(Failed(b, Moved("split"))) == [Group((1, 2), 1)]
    assert made.step(Prewritten(a, START + 5, exact=True)) == []
    again = made.step(Grouped(Group((1, 2), 1), [(1,), (2,)]))
    assert again == [Prewrite((1,)), Prewrite((2,))]
    made.step(Prewritten(again[0], START + 7, exact=True))
    assert ended(made.step(Prewritten(again[1], START + 6, exact=True))) == START + 7


def test_d13_refused_part_aborts_before_anybody_is_told() -> None:
    """Some intents are there; a rollback must come before the answer, or others commit the rest."""
    made, (a, b) = staged()
    refused = WriteConflict("no", details={"key": b"tab11"})
    assert made.step(Failed(b, refused)) == [Rollback()]
    assert made.step(Prewritten(a, START + 5, exact=True)) == [], "too late to be told by intents"
    assert ended(made.step(Answered(Rollback(), ABORTED, 0))) is refused


def test_d13_deadline_with_a_stage_is_an_unknown_outcome() -> None:
    """Others may commit it any moment: to call it a failure would be a lie."""
    for give_up in (False, True):
        made, (_, b) = staged()
        if give_up:
            assert made.step(GiveUp(DeadlineExceeded("late"))) == [Rollback()]
        else:
            made.step(Failed(b, LOST))
        assert isinstance(ended(made.step(OutOfTime())), UnknownOutcome)
        assert isinstance(made.interrupted(), UnknownOutcome)


def test_d13_a_range_that_begins_at_a_written_key_is_flipped() -> None:
    """A recovery would take the intent for the guard of the range, and commit a read that did not
    hold.
    """
    for read, parallel in ((b"m", False), (b"n", True)):
        ops = [put(b"a", b"1"), put(b"m", b"1"), Op(OP_READ, read, b"z", None, 0)]
        made = CommitCore(START, ops)
        made.start()
        made.step(Grouped(Group((0, 1, 2)), [(0,), (1,), (2,)]))
        assert bool(made.stage) == parallel


def test_d13_a_refused_flip_makes_failures_certain_again() -> None:
    """A record that is PENDING once is never STAGING again."""
    made, (a, b) = staged()
    made.step(Prewritten(a, START + 5, exact=False))
    made.step(Prewritten(b, START + 5, exact=True))
    made.step(Timestamp(START + 6))
    made.step(Answered(Flip(START + 6), PENDING, 0, START + 50))
    assert isinstance(ended(made.step(OutOfTime())), DeadlineExceeded)


def test_d13_too_old_is_aborted_not_implied() -> None:
    """`status` calls it aborted by then."""
    made, (a, b) = staged()
    made.step(Prewritten(a, START + 5, exact=True))
    late = START + compose(TXN_LIFETIME_MS_MAX + 1)
    assert made.step(Prewritten(b, late, exact=True)) == [Rollback()]


@pytest.mark.parametrize(
    ("keys", "parts", "key_bytes", "stages"),
    [
        (PARALLEL_PARTS_MAX, PARALLEL_PARTS_MAX, 8, True),
        (PARALLEL_PARTS_MAX + 1, PARALLEL_PARTS_MAX + 1, 8, False),
        (PARALLEL_KEYS_MAX, 2, 8, True),
        (PARALLEL_KEYS_MAX + 1, 2, 8, False),
        (20, 2, PARALLEL_KEY_BYTES_MAX // 20, True),
        (20, 2, PARALLEL_KEY_BYTES_MAX // 20 + 1, False),
    ],
)
def test_d13_only_small_transactions_are_staged(
    keys: int, parts: int, key_bytes: int, stages: bool
) -> None:
    """The record lists every key: it would grow without a bound."""
    ops = [put(b"%d" % i + b"k" * (key_bytes - len(b"%d" % i)), b"") for i in range(keys)]
    made = CommitCore(START, ops)
    (group,) = made.start()
    made.step(Grouped(group, [tuple(range(i, keys, parts)) for i in range(parts)]))
    assert bool(made.stage) == stages


FULL = Unavailable("the disk is full", details={"what": DISK_FREE})


def test_a_full_disk_is_told_at_once() -> None:
    """A commit waited for its whole deadline, and its caller was not told of the disk."""
    made, (a, b) = staged()
    assert made.step(Failed(a, LOST)) == [Prewrite(a.indexes, 1)]
    assert made.step(Failed(b, FULL)) == [Rollback()]
    alone = CommitCore(START, [put(b"k", b"v")])
    (group,) = alone.start()
    (write,) = alone.step(Grouped(group, [(0,)]))
    (finish, *_) = alone.step(Failed(write, FULL))
    assert finish == Finish(FULL)


NOWHERE = Unavailable("no partition of this key", code=NO_PARTITION)


def nowhere(made: CommitCore, prewrite: Effect) -> list[Effect]:
    """The effects when it was said often enough that no node has a partition of its keys."""
    effects: list[Effect] = [prewrite]
    while isinstance(sent := effects[0], Prewrite):
        assert sent.attempt < _NOWHERE_TRIES
        effects = made.step(Failed(sent, NOWHERE))
    return effects


def test_d13_a_table_that_is_gone_is_no_unknown_outcome() -> None:
    """A transaction anchored in a table that had been dropped before it began was told after ten
    seconds that it may be committed, though no record of it was ever made.
    """
    made, (a, b) = staged()
    assert made.step(Prewritten(b, START + 5, exact=True)) == []
    assert nowhere(made, a) == [Rollback()]
    effects = made.step(Failed(Rollback(_NOWHERE_TRIES - 1), NOWHERE))
    assert effects[0] == Finish(NOWHERE)
    assert made.state is State.ABORTED


@pytest.mark.parametrize("answered", [True, False])
def test_d13_a_record_that_may_be_there_stays_a_doubt(answered: bool) -> None:
    """The anchor's prewrite was executed, or may have been: others may have found all intents, and
    the commit, before the table went. "Nothing was written" would be a lie.
    """
    made, (a, b) = staged()
    if answered:
        assert made.step(Prewritten(a, START + 5, exact=True)) == []
        assert nowhere(made, b) == [Rollback()]
    else:
        (again,) = made.step(Failed(a, UnknownOutcome("a reply was lost")))
        assert nowhere(made, again) == [Rollback()]
    assert made.step(Failed(Rollback(9), NOWHERE)) == [Rollback(10)], "it is asked again"
    (told,) = made.step(OutOfTime())
    assert isinstance(told, Finish)
    assert isinstance(told.outcome, UnknownOutcome)
    assert made.state is State.UNKNOWN
