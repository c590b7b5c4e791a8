"""The one table of verbs (kv/base/verbs.py) is whole, and what is derived from it is current."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kv.base import methods
from kv.base.errors import InvalidArgument
from kv.base.rights import Action, Kind
from kv.base.verbs import NODE_METHODS, VERBS, Caller, Repeat, Table
from kvorum.api import verbs as of_nodes
from procedures import verbs as of_procedures
from scripts.document_verbs import PAGE, page
from tso import verbs as of_timestamps

NUMBERS = (
    "1 GET 2 PUT 3 DELETE 4 WRITE 5 MGET 6 SCAN 7 CHANGES 8 AWAIT_CHANGES 9 READ_NOW "
    "10 PREWRITE 11 COMMIT 12 ROLLBACK 13 CHECK 14 RESOLVE 15 HEARTBEAT 16 PREWRITE_ROWS "
    "17 RECOVER 18 SETTLE 19 FINISH 20 SCAN_VALUES 21 PAIRS 22 PARTS 23 WRITE_ROWS "
    "24 SCAN_SEALED 25 INGEST 26 HELD 27 MARK 64 PING 65 LOOKUP 66 TSO 67 STATS 68 FIND_TXN "
    "69 SAFEPOINT "
    "70 PROC_SUBMIT 71 PROC_GET 72 PROC_LIST 73 PROC_ACK 74 PROC_ABORT 80 SINK_BEGIN "
    "81 SINK_STAGE 82 SINK_SEAL 83 SINK_COMMIT 84 SINK_ABORT 85 SINK_PLACE 88 PLACES 90 LINKS "
    "91 CAMPAIGN 92 CREATE_PARTITION 93 DROP_PARTITION 94 JOIN 95 CHANGE_REPLICAS 96 STANDING "
    "97 HOLDS_TXN 98 REPLICA_STATUS 99 FORCE_MEMBERS 100 WAITS 101 REFUSE_WAIT 102 PAST_HOUR "
    "110 SNAPSHOT_OPEN 111 SNAPSHOT_RENEW 112 SNAPSHOT_RELEASE 113 SNAPSHOT_LIST "
    "114 COLLECT_BELOW 115 OLDEST_INTENT 116 ANCHORED 117 TSO_RELAYED 118 END_TXN 119 PROVE "
    "120 SPLIT_PARTITION 122 FREEZE_PARTITION 123 THAW_PARTITION 124 CAUGHT_UP "
    "125 MERGE_PARTITION 126 SETTLE_PARTITION 127 VERIFY_REPLICA 130 BEAT "
    "131 BEAT_NOW 132 SPLIT_POINT 133 REPORTS 134 CHECK_REPLICA 135 RAISE_SAFEPOINT "
    "136 WALL_CLOCK "
    "147 CLAIM 148 ACCESS 149 CATALOG 150 LOCK_BEAT 151 LOCK_END "
    "160 BUS_ORDERS 161 BUS_REPORTS 170 WORK_ENTER 171 WORK_POLL 172 WORK_IDS 173 WORK_LEAVE "
    "174 WORK_LIST "
    "175 PROC_CONTROL 179 PROC_SUBMIT_MORE"
)


OPENING = {"JOIN", "PROVE"}  # by which somebody becomes a node, or shows that he is one


def test_numbers_stay_what_they_are() -> None:
    """A node would do something else than what a client of an earlier version asks for."""
    assert " ".join(f"{verb.number} {verb.name}" for verb in VERBS) == NUMBERS


def test_every_verb_says_who_may_send_it_and_which_right_that_needs() -> None:
    """A verb without them would be open to whoever reaches the port."""
    for one in VERBS:
        assert one.callers, one.name
        assert all(isinstance(caller, Caller) for caller in one.callers), one.name
        assert isinstance(one.action, Action), one.name
        assert isinstance(one.resource.kind, Kind), one.name
        assert one.resource.field in ("", *one.fields), one.name
        ordered = {Caller.NODE, Caller.MASTER} & set(one.callers)
        assert (one.action is Action.NODE) <= bool(ordered or one.name in OPENING), one.name
        if one.number < NODE_METHODS:
            assert one.resource == (Kind.TABLE, one.keys, "the key"), one.name


def test_every_constant_is_its_verbs_number() -> None:
    """A name that stands for another number would be found by nobody who reads the code."""
    for module in (methods, of_timestamps, of_procedures, of_nodes):
        for one in VERBS:
            if one.request.__module__ == module.__name__:
                assert getattr(module, one.name) == one.number
                assert one.request.__doc__
                assert one.request.__doc__.startswith("→"), one.name


def test_the_page_about_the_protocol_is_current() -> None:
    """Somebody who writes a client reads there which arguments a request has."""
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "run: python -m scripts.document_verbs"


def test_two_verbs_have_two_numbers_and_names() -> None:
    """Two layers that take the same number would answer each other's requests."""
    table = Table()
    table.add(VERBS[methods.GET])
    with pytest.raises(AssertionError, match="has the number of GET"):
        table.add(replace(VERBS[methods.PUT], number=methods.GET))
    with pytest.raises(AssertionError, match="GET is both 1 and 200"):
        table.add(replace(VERBS[methods.GET], number=200))


def test_arguments_with_a_default_may_be_missing() -> None:
    """Clients of an earlier version send fewer of them."""
    mget = VERBS[methods.MGET]
    mget.check([1, 5, 0, 1, 1, [b"\0\0\0\1a"], 0, None])
    mget.check([1, 5, 0, 1, 1, [b"\0\0\0\1a"], 0, None, True])
    with pytest.raises(InvalidArgument, match="MGET takes 5 arguments"):
        mget.check([1, 5, 0, 1, 1, [b"\0\0\0\1a"], 0])
    with pytest.raises(InvalidArgument, match="counted must be a boolean"):
        mget.check([1, 5, 0, 1, 1, [b"\0\0\0\1a"], 0, None, 1])


def test_what_is_asked_may_be_asked_again() -> None:
    """A question that is not repeated after a lost reply fails for nothing; a put that is, is done
    twice.
    """
    again = {one.name for one in VERBS if one.repeat is not Repeat.ONCE}
    assert {"GET", "SCAN", "COMMIT", "PREWRITE", "TSO", "WORK_POLL"} <= again
    assert not {"PUT", "DELETE", "WRITE", "WRITE_ROWS", "PROC_SUBMIT", "FORCE_MEMBERS"} & again
    assert VERBS[of_procedures.PROC_SUBMIT].may_repeat(("name", b"", "me", "nonce"))
    assert not VERBS[of_procedures.PROC_SUBMIT].may_repeat(("name", b"", "me", None))
    control = VERBS[of_procedures.PROC_CONTROL]
    for what in ("queue.list", "queue.show", "version.page"):
        assert control.right((what, b"")) is Action.READ
    for what in ("queue.set", "version.set", "version.rollback", "version.move"):
        assert control.right((what, b"")) is Action.OPERATE
