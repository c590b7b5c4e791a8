"""What a request of the native protocol says for the log of stamps: which arguments and which part
of the reply is what, its verb says (kv/base/verbs.py). Pure.

Of a read of the newest state the moment is the partition's read point, which its reply was made
at. Arguments may be anything, refused requests are logged, too: what cannot be read is left out.

Left out: what nodes ask each other about themselves (heartbeats, orders, waits); only what they
read and write for their clients is a request of somebody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kv.base.errors import Forbidden, InvalidArgument, KvorumError, Unauthenticated
from kv.base.methods import COMMIT, COMMITTED, FINISH
from kv.base.rights import Identity
from kv.base.verbs import NODE_METHODS, PARTITION_ARGS_AT, RESULT_AT, VERBS, Touches, Verb
from kv.base.wire_row import WireRow
from kvorum.api import verbs as _all  # noqa: F401 - every verb is in the table then
from kvorum.api.names import PREFIX_BYTES
from kvorum.audit.audit_log import OK, Asker, Key, Stamp, StampLog
from procedures.engine import plain_data
from procedures.verbs import PROC_CONTROL, PROC_SUBMIT, PROC_SUBMIT_MORE, ProcControl, ProcSubmit

_SURFACE: Final = "native"
_DENIED: Final = frozenset({Forbidden.code, Unauthenticated.code})
_NUMBERS: Final = ("read_ts", "start_ts", "commit_ts", "version", "txn", "procedure")
_READ_TS, _START_TS, _COMMIT_TS, _, _TXN, _PROCEDURE = range(len(_NUMBERS))
_MALFORMED: Final = (IndexError, KeyError, TypeError, ValueError, AttributeError, InvalidArgument)


def _rows(request: WireRow, at: int) -> Sequence[Any]:
    """Of packed rows the first and the last."""
    named = request[at]
    return (named[0], named[-1]) if isinstance(request[at + 1], bytes) else named


_KEYS: Final[Mapping[Touches | None, Callable[[WireRow, int], Sequence[Any]]]] = {
    None: lambda _request, _at: (),
    Touches.KEY: lambda request, at: (request[at],),
    Touches.ANCHOR: lambda request, at: (request[at],),
    Touches.RANGE: lambda request, at: (request[at],),
    Touches.KEYS: lambda request, at: request[at],
    Touches.ROWS: _rows,
    Touches.OPS: lambda request, at: [op[1] for op in request[at]],
    Touches.ENDS: lambda request, at: [key for end in request[at] for key in end[-1]],
}


class _Plan(NamedTuple):
    """What a verb says, ready for use."""

    name: str
    keys: Callable[[WireRow, int], Sequence[Any]]
    keys_at: int
    ranges: bool  # its keys are shown as tables
    shown: Sequence[tuple[int, int]]  # place in _NUMBERS, place in the request
    in_reply: Sequence[tuple[int, int]]  # the same, in the reply


def _plan(verb: Verb) -> _Plan:
    return _Plan(
        verb.name,
        _KEYS[verb.touches],
        verb.at(verb.keys) if verb.keys else 0,
        verb.touches is Touches.RANGE,
        [(_NUMBERS.index(name), at) for name, at in verb.shown.items()],
        [(_NUMBERS.index(name), at) for name, at in verb.in_reply.items()],
    )


_PLANS: Final = {verb.number: _plan(verb) for verb in VERBS}
_NEWEST: Final = {verb.number for verb in VERBS if verb.keys and "read_ts" in verb.shown}
_CONTROL_AT: Final = ProcControl.verb.at("args")
_SUBMITS: Final = (PROC_SUBMIT, PROC_SUBMIT_MORE)
_TYPE_AT: Final = ProcSubmit.verb.at("name")


class NativeStamps:
    """kv.server.tap.Listener."""

    def __init__(self, stamps: StampLog, read_point: Callable[[int], int]) -> None:
        """`read_point(partition)`: what a read of the newest state is served at now."""
        self._stamps, self._read_point = stamps, read_point

    def answered(
        self,
        client: str,
        node: int,
        who: Identity | None,
        request: WireRow,
        reply: WireRow,
        took_s: float,
    ) -> None:
        method = request[1]
        if node and method >= NODE_METHODS:
            return
        code = str(reply[3]) if reply[1] and len(reply) > 3 else OK
        asker = None
        if who is not None:
            denied = reply[4] if reply[1] and reply[2] in _DENIED else ""
            asker = Asker(who.name, who.credential, "", "", denied)
        if method == FINISH and code == OK:
            self._finished(client, node, asker, request, reply, took_s)
            return
        keys: Sequence[Key] = ()
        tables: Sequence[int | str] = ()
        numbers = [0] * len(_NUMBERS)
        plan = _PLANS.get(method)
        if plan is not None:
            try:
                found = self._numbers(plan, request, reply)
                named = [_key(key) for key in plan.keys(request, plan.keys_at)]
            except _MALFORMED:  # it was refused for that
                pass
            else:
                numbers = found
                if plan.ranges:
                    tables = (named[0][0],)
                else:
                    keys = named
        name, type_ = str(method) if plan is None else plan.name, ""
        if method in _SUBMITS and code == OK:
            type_ = request[_TYPE_AT]
        common = (_SURFACE, client, name, keys, tables, code, took_s)
        self._stamps.add(Stamp._make((*common, *numbers, node, asker, type_)))

    def login(self, client: str, who: Identity, error: KvorumError | None) -> None:
        """`who`: as he claimed, if it failed. What he showed to prove it is nobody's business."""
        code, denied = (OK, "") if error is None else (error.code, error.message)
        asker = Asker(who.name, who.credential, "", "", denied)
        self._stamps.add(Stamp(_SURFACE, client, "login", code=code, asker=asker))

    def _finished(
        self,
        client: str,
        node: int,
        asker: Asker | None,
        request: WireRow,
        reply: WireRow,
        took_s: float,
    ) -> None:
        """Ends of many transactions: a stamp for each."""
        for (start_ts, anchor, commit_ts, keys), (status, _) in zip(
            request[PARTITION_ARGS_AT], reply[RESULT_AT], strict=True
        ):
            if anchor is not None and status != COMMITTED:
                commit_ts = 0  # it was not looked at: COMMIT follows
            named = [_key(key) for key in keys]
            common = _SURFACE, client, "FINISH", named, (), OK, took_s
            self._stamps.add(Stamp(*common, 0, start_ts, commit_ts, 0, start_ts, 0, node, asker))

    def _numbers(self, plan: _Plan, request: WireRow, reply: WireRow) -> list[int]:
        """The timestamps and ids of a stamp."""
        found = [0] * len(_NUMBERS)
        for place, at in plan.shown:
            found[place] = request[at]
        method = request[1]
        if reply[1]:
            found[_COMMIT_TS] = 0
        else:
            for place, at in plan.in_reply:
                found[place] = reply[at]
            if method == COMMIT:
                found[_COMMIT_TS] = reply[RESULT_AT + 1] if reply[RESULT_AT] == COMMITTED else 0
            elif method in _NEWEST and not found[_READ_TS]:
                found[_READ_TS] = self._read_point(request[3])
        if method < NODE_METHODS:
            found[_TXN] = found[_START_TS]
        elif method == PROC_CONTROL:
            found[_PROCEDURE] = plain_data.read(request[_CONTROL_AT], "arguments").get("id", 0)
        for number in found:
            if type(number) is not int:
                raise TypeError
        return found


def _key(key: object) -> Key:
    if type(key) is not bytes:
        raise TypeError
    return int.from_bytes(key[:PREFIX_BYTES], "big"), key[PREFIX_BYTES:]
