"""The rules of a target, by hand: what is begun, ignored, taken back and forgotten."""

from __future__ import annotations

from kv.base import limits
from procedures.bus.messages import Order, Status, Verb
from procedures.bus.receiver import Begin, Receiver, Stop
from procedures.engine import plain_data

LEASE_S = limits.BUS_LEASE_MS / 1000


def order(verb: Verb, round_: int = 1, op: str = "1") -> Order:
    return Order(op, verb, round_, "test", plain_data.EMPTY, limits.BUS_LEASE_MS)


def done(receiver: Receiver, what: Order, now_s: float = 0.0) -> object:
    return receiver.ended(what, Status.DONE, plain_data.NONE, now_s)


def test_n2_an_order_that_is_repeated_is_begun_once() -> None:
    """A repeated message carried out the operation twice, while it ran or after it."""
    receiver = Receiver()
    assert receiver.take(order(Verb.DO), 0) == Begin(order(Verb.DO))
    assert receiver.take(order(Verb.DO), 1) is None
    assert receiver.answer(order(Verb.DO)).status is Status.WORKING
    done(receiver, order(Verb.DO), 2)
    assert [r.status for r in receiver.reports()] == [Status.DONE]
    assert receiver.reports() == []
    assert receiver.take(order(Verb.DO), 3) is None
    assert receiver.answer(order(Verb.DO)).status is Status.DONE


def test_n2_a_stage_behind_its_undo_stages_nothing() -> None:
    """A late STAGE brought back what had been taken back, and nobody would ever end it."""
    receiver = Receiver()
    assert receiver.take(order(Verb.UNDO), 0) == Begin(order(Verb.UNDO))
    assert receiver.take(order(Verb.STAGE), 0) is None
    done(receiver, order(Verb.UNDO))
    assert receiver.take(order(Verb.STAGE), 1) is None
    assert receiver.take(order(Verb.COMMIT), 1) is None
    assert receiver.answer(order(Verb.STAGE)).verb is Verb.UNDO


def test_n2_an_older_round_is_ignored() -> None:
    """What was asked before the partitions moved was done after what is asked now."""
    receiver = Receiver()
    receiver.take(order(Verb.DO, 2), 0)
    done(receiver, order(Verb.DO, 2))
    assert receiver.take(order(Verb.DO, 1), 1) is None
    assert receiver.answer(order(Verb.DO, 1)).round == 2


def test_n5_undo_stops_what_is_under_way_first() -> None:
    """Both at once: what was stopped went on behind its undo."""
    receiver = Receiver()
    receiver.take(order(Verb.DO), 0)
    assert receiver.take(order(Verb.UNDO), 1) == Stop("1")
    assert receiver.take(order(Verb.UNDO), 1) is None
    begun = receiver.ended(order(Verb.DO), Status.FAILED, plain_data.NONE, 2)
    assert begun == Begin(order(Verb.UNDO))
    assert receiver.reports() == [], "it is not taken back yet"


def test_n6_a_commit_knows_whether_this_process_staged() -> None:
    """After a restart a commit found nothing to commit, and said that it was done."""
    receiver = Receiver()
    receiver.take(order(Verb.STAGE), 0)
    done(receiver, order(Verb.STAGE))
    assert receiver.take(order(Verb.COMMIT), 1) == Begin(order(Verb.COMMIT), staged=True)
    assert Receiver().take(order(Verb.COMMIT), 1) == Begin(order(Verb.COMMIT), staged=False)


def test_n7_a_lease_that_ends_takes_back_what_is_staged_and_no_decision() -> None:
    """Staged files stayed for ever at a node that the master forgot; or a committed operation was
    taken back because nobody spoke of it any more.
    """
    receiver = Receiver()
    receiver.take(order(Verb.STAGE), 0)
    done(receiver, order(Verb.STAGE))
    receiver.take(order(Verb.STAGE, op="2"), 0)
    done(receiver, order(Verb.STAGE, op="2"))
    receiver.take(order(Verb.COMMIT, op="2"), 0)
    done(receiver, order(Verb.COMMIT, op="2"))
    assert receiver.expire(LEASE_S - 1) == []
    receiver.take(order(Verb.STAGE), 10)  # heard of again
    assert receiver.expire(LEASE_S + 1) == []
    taken_back = order(Verb.STAGE)._replace(verb=Verb.UNDO)
    assert receiver.expire(LEASE_S + 11) == [Begin(taken_back, own=True)]
    assert receiver.expire(LEASE_S + 12) == []
    assert done(receiver, taken_back, LEASE_S + 12) is None
    assert receiver.take(order(Verb.STAGE), 40) == Begin(order(Verb.STAGE)), "no decision"


def test_n7_asked_again_while_it_is_taken_back() -> None:
    """An order that came during the taking back was lost, or ran beside it."""
    receiver = Receiver()
    receiver.take(order(Verb.STAGE), 0)
    done(receiver, order(Verb.STAGE))
    (begun,) = receiver.expire(LEASE_S + 1)
    assert isinstance(begun, Begin)
    assert receiver.take(order(Verb.COMMIT), LEASE_S + 2) is None
    after = receiver.ended(begun.order, Status.DONE, plain_data.NONE, LEASE_S + 3)
    assert after == Begin(order(Verb.COMMIT), staged=False), "it is staged anew"


def test_n7_a_taking_back_that_fails_is_tried_again() -> None:
    """A full disk for a moment left staged files for ever."""
    receiver = Receiver()
    receiver.take(order(Verb.STAGE), 0)
    done(receiver, order(Verb.STAGE))
    (begun,) = receiver.expire(LEASE_S + 1)
    assert isinstance(begun, Begin)
    receiver.ended(begun.order, Status.FAILED, plain_data.NONE, LEASE_S + 2)
    at_s = receiver.next_s()
    assert at_s is not None
    assert at_s > LEASE_S + 2, "not at once"
    assert receiver.expire(at_s) == [begun]


def test_n7_half_taken_back_is_not_staged() -> None:
    """A commit behind a taking back that had failed half-way committed what was left."""
    receiver = Receiver()
    receiver.take(order(Verb.STAGE), 0)
    done(receiver, order(Verb.STAGE))
    (begun,) = receiver.expire(LEASE_S + 1)
    assert isinstance(begun, Begin)
    receiver.take(order(Verb.COMMIT), LEASE_S + 2)
    after = receiver.ended(begun.order, Status.FAILED, plain_data.NONE, LEASE_S + 3)
    assert after == Begin(order(Verb.COMMIT), staged=False)


def test_n2_memory_is_bounded_and_refusals_are_told() -> None:
    """A target that remembered every operation it ever had; or dropped some without a word."""
    receiver = Receiver()
    for i in range(limits.BUS_OPERATIONS_MAX):
        receiver.take(order(Verb.DO, op=f"{i}"), 0)
    late = order(Verb.DO, op="late")
    assert receiver.take(late, 0) is None
    answer = receiver.answer(late)
    assert answer.status is Status.FAILED
    assert answer.plain()[0] == "BUSY"
    assert answer.plain()[2] is False, "it may be asked again"
    done(receiver, order(Verb.DO, op="0"))
    assert receiver.take(late, 1) == Begin(late)
    for i in range(1, limits.BUS_OPERATIONS_MAX):
        done(receiver, order(Verb.DO, op=f"{i}"))
    done(receiver, late)
    receiver.expire(10 * LEASE_S)
    assert len(receiver) == 0
