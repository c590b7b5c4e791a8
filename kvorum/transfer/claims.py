"""An empty place is taken by one writer, though object stores create nothing exclusively.

    begun-ID.claim    whoever wants the place writes this and looks who else did

Who finds another's claim goes again, but that of two who came at the same moment the one with the
lower name stays: it looks again until the other's claim is gone. If it does not go, the other one
was there before and writes: then this one goes. So of any number at most one writes, as long as a
store lists what was written before (S3, GCS, Azure, HDFS and directories do).
"""

from __future__ import annotations

from typing import Final

from kv.base.errors import Refused
from kvorum.transfer.places import Place

LOOK_MS: Final = 250
LOOKS_MAX: Final = 12
_HEAD: Final = "begun-"
_TAIL: Final = ".claim"


def is_claim(name: str) -> bool:
    return name.startswith(_HEAD) and name.endswith(_TAIL) and "/" not in name


def claim_of(id: str) -> str:
    return f"{_HEAD}{id}{_TAIL}"


def take(place: Place, id: str, what: str, *, looks: int) -> bool:
    """Whether the place is this writer's (done again: it still is). False: look again after
    LOOK_MS; `looks` is how often it looked. Raises Refused (TARGET_IN_USE), and has left nothing
    there then.
    """
    mine = claim_of(id)
    names = place.names()
    if mine not in names:
        _refuse(place, names, what)
        place.write(mine, b"{}\n")
        names = place.names()
    others = [name for name in names if name != mine]
    rivals = [name for name in others if is_claim(name)]
    if not others:
        return True
    if len(rivals) == len(others) and mine < min(rivals) and looks < LOOKS_MAX:
        return False
    place.remove(mine)
    _refuse(place, others, what)
    raise AssertionError("unreachable: there are others")


def release(place: Place, id: str) -> None:
    """Fine if it is not there."""
    place.remove(claim_of(id))


def _refuse(place: Place, names: list[str], what: str) -> None:
    if not names:
        return
    busy = next((name for name in names if is_claim(name)), None)
    why = f"is not empty ({names[0]})" if busy is None else f"is being written by another ({busy})"
    raise Refused(
        f"{place.uri} {why}: {what} wants a place of its own",
        code="TARGET_IN_USE",
        details={"target": place.uri},
    )
