"""Histories: what is recorded comes back, and what is no history is refused."""

from __future__ import annotations

import pytest

from kv.base.errors import InvalidArgument, KvorumError, Unavailable, UnknownOutcome, WriteConflict
from kvorum.verify.history import FOREVER, Header, History, Recorder, outcome_of


class Ticks:
    """A clock that advances by one second whenever it is looked at."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def recorded() -> History:
    recorder = Recorder(Header("bank", 7, "snapshot", {"accounts": 3}), Ticks())
    a = recorder.invoke(0, "transfer", {"from": "a", "to": "b", "amount": 5})
    b = recorder.invoke(1, "read")
    recorder.note("kill", node=2)
    recorder.ok(b, {"a": 10, "b": 0, "ü": [1, None]}, txn=5)
    recorder.unknown(a, "UNKNOWN_OUTCOME")
    c = recorder.invoke(1, "transfer", {"from": "b"})
    recorder.fail(c, "WRITE_CONFLICT")
    recorder.invoke(2, "read")
    return recorder.history


def test_history_pairs_invocations_with_their_ends() -> None:
    """A completion given to the wrong operation would make checkers judge something else."""
    write, read, refused, open_ = recorded().operations()
    assert (write.outcome, write.ended, write.error) == ("unknown", FOREVER, "UNKNOWN_OUTCOME")
    assert (read.outcome, read.result["b"], read.info) == ("ok", 0, {"txn": 5})
    assert read.began < read.ended < refused.began
    assert (refused.outcome, refused.args) == ("fail", {"from": "b"})
    assert (open_.outcome, open_.ended, open_.error) == ("unknown", FOREVER, "NO_ANSWER")
    assert [o.id for o in recorded().operations("read")] == [read.id, open_.id]


def test_history_as_lines_is_the_same_history() -> None:
    """A history that is re-checked from its file must be the one that was recorded."""
    history = recorded()
    again = History.parse(history.lines())
    assert again.header == history.header
    assert again.events == history.events


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "empty"),
        (["{}"], "line 1"),
        (['{"format": 2, "workload": "bank"}'], "format 2"),
        (['{"format": 1, "workload": "bank"}', "not JSON"], "line 2"),
        (['{"format": 1, "workload": "bank"}', '{"type": "ok", "process": 1}'], "line 2"),
        (
            [
                '{"format": 1, "workload": "bank"}',
                '{"type": "ok", "process": 1, "time_s": 0, "f": "read", "op": 0}',
            ],
            "op 0",
        ),
        (['{"format": 1, "workload": "x"}', '{"type": "boom", "process": 1}'], "boom"),
    ],
)
def test_history_that_is_none_is_refused(lines: list[str], says: str) -> None:
    """A damaged file must be refused with its line, never be judged as if it were whole."""
    with pytest.raises(InvalidArgument, match=says):
        History.parse(lines)


def test_outcome_of_errors() -> None:
    """An unknown outcome taken for a failure would call a kept write a stranger."""
    assert outcome_of(UnknownOutcome("?")) == "unknown"
    assert outcome_of(KvorumError("a bug")) == "unknown"
    assert outcome_of(Unavailable("no leader")) == "fail"
    assert outcome_of(WriteConflict("younger")) == "fail"
