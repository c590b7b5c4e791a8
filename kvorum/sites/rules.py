"""What becomes of a key that the other cluster wrote: pure.

A change is *concurrent* with what is here if neither writer knew of the other: the newest version
here was written here, and the other cluster had not taken it over yet (`seen`, its position in our
feed) when it wrote. A change that is not concurrent follows what it replaces, and is taken.

    last       of concurrent changes the one with the higher commit timestamp stays; of equal ones
               that of the cluster whose id is higher. Deletions are changes.
    counter    decimal numbers: the difference that the change made is added, concurrent or not. No
               row and 0 are the same: a sum of 0 leaves no row. (Of what was counted before the
               links, the later one stays: taking.py)
    set        JSON arrays: both are united; an element that only one of them removed is there
    procedure  a procedure of the users' makes one value of both (Joined)

Both clusters come to the same value, because what they make of values depends neither on which of
them is the one that is here nor on their order, and is x for x and x. It is a write of this cluster
(`ours`) and goes back, also if it is what the other wrote: that may have been overwritten there
since, by somebody who did not know of what was here. What is not a number or an array is handled as
by `last`.
"""

from __future__ import annotations

import json
from typing import Final, Literal, NamedTuple

from kv.base.limits import VALUE_BYTES_MAX
from kv.base.timestamps import MAX

Rule = Literal["last", "counter", "set", "procedure"]
RULES: Final[tuple[Rule, ...]] = ("last", "counter", "set", "procedure")
_NUMBER_CHARS_MAX: Final = 4_000


class Standing(NamedTuple):
    """What is here. `version` of a key without a row: that of its deletion, 0 = none is known.
    `ours`: that version was written here, not taken over.
    """

    value: bytes | None
    version: int
    ours: bool


class Change(NamedTuple):
    """What the other cluster did to a key. `before`: its value just below `version` (of counters
    only). `seen`: up to where the writer had our changes.
    """

    value: bytes | None
    version: int
    seen: int
    expires_ms: int = 0
    before: bytes | None = None


class Joined(NamedTuple):
    """What a procedure made of the two values."""

    value: bytes | None


class Verdict(NamedTuple):
    """What stays. `write`: it is not what is here. `ours`: it is a write of this cluster, for the
    other one to take. `conflict`: both wrote, and neither knew of the other.
    """

    value: bytes | None
    write: bool
    ours: bool = False
    conflict: bool = False

    def standing(self, here: Standing) -> Standing:
        """What is here afterwards, for a later change of the same transaction here."""
        if not self.write:
            return here
        return Standing(self.value, MAX if self.ours else 0, self.ours)


def concurrent(here: Standing, change: Change) -> bool:
    """Whether neither writer knew of the other."""
    return here.ours and here.version > change.seen


def asks(rule: Rule, here: Standing, change: Change) -> bool:
    """Whether a procedure has to say what becomes of them."""
    return rule == "procedure" and concurrent(here, change) and here.value != change.value


def verdict(
    rule: Rule,
    here: Standing,
    change: Change,
    *,
    higher: bool,
    joined: Joined | None = None,
) -> Verdict:
    """`higher`: this cluster's id is the higher one. `joined`: what the procedure said, where one
    `asks` it.
    """
    if rule == "counter" and (found := _sum(here.value, change)) is not None:
        return Verdict(found.value, write=found.value != here.value)
    there = change.value is not None or here.value is not None
    if not concurrent(here, change):
        return Verdict(change.value, write=there)
    differs = here.value != change.value
    if differs and rule == "set":
        joined = _united(here.value, change.value)
    if differs and joined is not None:
        new = joined.value != here.value
        return Verdict(joined.value, write=new, ours=new, conflict=True)
    if (here.version, higher) > (change.version, not higher):
        return Verdict(here.value, write=False, conflict=differs)
    return Verdict(change.value, write=there, conflict=differs)


def _sum(here: bytes | None, change: Change) -> Joined | None:
    """None: one of them is no number."""
    now, after, before = (_number(value) for value in (here, change.value, change.before))
    if now is None or after is None or before is None:
        return None
    total = now + after - before
    return Joined(b"%d" % total if total else None)


def _number(value: bytes | None) -> int | None:
    if value is None:
        return 0
    digits = value[1:] if value[:1] in (b"-", b"+") else value
    if not digits.isdigit() or len(value) > _NUMBER_CHARS_MAX:
        return None
    return int(value)


def _united(here: bytes | None, there: bytes | None) -> Joined | None:
    """The elements in the order of their text. A deletion is the empty set. None: one of them is
    no array, or it would be too large.
    """
    mine, others = _elements(here), _elements(there)
    if mine is None or others is None:
        return None
    text = b"[%s]" % b",".join(sorted(mine | others))
    if len(text) > VALUE_BYTES_MAX:
        return None
    return Joined(text if mine or others else None)


def _elements(value: bytes | None) -> frozenset[bytes] | None:
    """Their text, in which equal elements are alike."""
    if value is None:
        return frozenset()
    try:
        found = json.loads(value)
        if not isinstance(found, list):
            return None
        return frozenset(json.dumps(one, sort_keys=True).encode() for one in found)
    except (ValueError, RecursionError):
        return None
