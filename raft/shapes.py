"""What the messages of consensus look like: which fields a kind must have, and of what type each
field is, whatever kind has it.

A message of another shape is dropped before a group sees it (`RaftHost.receive`): what a group does
with half a message, nobody can say, so it would stop. Fields and kinds that are not here pass: a
newer version's, which an older one never looks at.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Final

_INT: Final = (int,)
_INT_MAX: Final = 1 << 63  # what is stored of them has eight bytes
_FLAG: Final = (bool,)
_TIME: Final = (float, int)

FIELDS: Final[Mapping[str, tuple[type, ...]]] = {
    **dict.fromkeys(("term", "round", "forced", "commit_index", "sleep"), _INT),
    **dict.fromkeys(("last_log_index", "last_log_term", "config_index", "ask"), _INT),
    **dict.fromkeys(("next_node_idx", "last", "waiting"), _INT),
    **dict.fromkeys(("index_term", "number", "chunk", "total", "next", "wants"), _INT),
    **dict.fromkeys(("witness", "transfer", "success", "reset", "blank", "refused"), _FLAG),
    **dict.fromkeys(("prevLogIdx", "prevLogTerm", "index"), (int, type(None))),
    "at": _TIME,
    "entries": (list, tuple),  # of what, wire.py has looked at
    "members": (list, tuple),
    "reason": (str,),
    "data": (bytes,),
    "config": (bytes, int),  # of a snapshot the configuration, of a removal its index
}
_TERM: Final = ("term",)
_LOG: Final = ("last_log_index", "last_log_term")

REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "append_entries": ("term", "commit_index"),
    "next_node_idx": ("term", "next_node_idx", "success"),
    "hb_ack": ("term", "round"),
    "request_vote": (*_TERM, *_LOG, "transfer"),
    "response_vote": _TERM,
    "pre_vote": (*_TERM, *_LOG, "round"),
    "pre_vote_ok": ("term", "round"),
    "snapshot": (
        *("term", "index", "index_term", "number", "config_index", "config"),
        *("chunk", "data", "total", "at"),
    ),
    "snapshot_ack": ("term", "number", "next", "wants", "refused", "at"),
    "timeout_now": _TERM,
    "stale": _TERM,
    "removed": ("term", "config"),
    "fenced": ("members", "reason"),
    "asleep": ("term", "round", "index"),
    "wake": _TERM,
    "read_index": ("term", "ask"),
    "read_at": ("term", "ask", "index"),
}
# Where a field that may be missing or None elsewhere must be there, and of which type.
_NARROW: Final[Mapping[str, tuple[tuple[str, type], ...]]] = {
    "snapshot": (("index", int), ("config", bytes)),
    "removed": (("config", int),),
    "asleep": (("index", int),),
}


# The three that come all the time, as they are sent: one look at the types of all their fields.
_USUAL: Final = {
    kind: (len(fields) + 1, itemgetter(*fields), tuple(FIELDS[name][0] for name in fields))
    for kind, fields in {
        "append_entries": (
            *("term", "commit_index", "at", "entries", "prevLogIdx", "prevLogTerm", "round"),
        ),
        "next_node_idx": (*("term", "next_node_idx", "success", "reset", "last", "at", "waiting"),),
        "hb_ack": ("term", "round"),
    }.items()
}


def trouble(message: Mapping[str, Any]) -> str | None:
    """What is wrong with a message, None if a group may look at it."""
    kind = message["type"]
    usual = _USUAL.get(kind)
    if usual is not None and len(message) == usual[0]:
        try:
            values = usual[1](message)
        except KeyError:
            values = ()
        if tuple(map(type, values)) == usual[2] and 0 <= values[0] < _INT_MAX:
            return None
    required = REQUIRED.get(kind)
    if required is None:
        return None  # the group drops it
    for name in required:
        if name not in message:
            return f"{kind} without {name}"
    for name, value in message.items():
        types = FIELDS.get(name)
        if types is not None and type(value) not in types:
            return f"{kind}: {name} is {type(value).__name__}"
        if type(value) is int and not -1 <= value < _INT_MAX:
            return f"{kind}: {name} is out of range"
    return _narrow(kind, message)


def _narrow(kind: str, message: Mapping[str, Any]) -> str | None:
    for name, wanted in _NARROW.get(kind, ()):
        if type(message[name]) is not wanted:
            return f"{kind}: {name} is {type(message[name]).__name__}"
    if kind == "append_entries" and message.get("prevLogIdx") is not None:
        if "entries" not in message or type(message.get("prevLogTerm")) is not int:
            return f"{kind} with a position and no entries or term"
    elif kind == "fenced" and any(type(node) is not int for node in message["members"]):
        return f"{kind}: members are numbers"
    return None
