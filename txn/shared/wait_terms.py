"""How a transaction waits for others, and under which name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kv.base.errors import InvalidArgument
from kv.base.limits import DEADLINE_MS_MAX, NAME_CHARS_MAX

LOW: Final = -1
NORMAL: Final = 0
HIGH: Final = 1
PRIORITIES: Final = {"low": LOW, "normal": NORMAL, "high": HIGH}
NAMES: Final = {number: name for name, number in PRIORITIES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """`owner`: shown to those who wait for it. `priority` LOW, NORMAL or HIGH: its place where
    several wait for a key; of a circle of waits the lowest is given up. `lock_wait_ms`: how long it
    waits for another's intent; 0 = not at all, None = nearly until its deadline. Raises
    InvalidArgument.
    """

    owner: str = ""
    priority: int = NORMAL
    lock_wait_ms: int | None = None
    options: Mapping[str, object] = field(init=False, compare=False, repr=False)
    """What its requests say beside their arguments (kv.base.options)."""

    def __post_init__(self) -> None:
        if type(self.owner) is not str or len(self.owner) > NAME_CHARS_MAX:
            raise InvalidArgument(
                f"owner must be text of at most {NAME_CHARS_MAX} characters, got {self.owner!r:.80}"
            )
        if type(self.priority) is not int or not LOW <= self.priority <= HIGH:
            raise InvalidArgument(
                f"priority must be {LOW} (low), {NORMAL} (normal) or {HIGH} (high), "
                f"got {self.priority!r:.40}"
            )
        wait_ms = self.lock_wait_ms
        options: dict[str, object] = {"owner": self.owner} if self.owner else {}
        if self.priority:
            options["priority"] = self.priority
        if wait_ms is not None:
            options["wait_ms"] = wait_ms
        object.__setattr__(self, "options", options)
        if wait_ms is None:
            return
        if type(wait_ms) is not int or not 0 <= wait_ms <= DEADLINE_MS_MAX:
            raise InvalidArgument(
                f"lock_wait_ms must be from 0 (do not wait) to {DEADLINE_MS_MAX}, or left out, "
                f"got {wait_ms!r:.40}"
            )


USUAL: Final = Terms()


def terms(*, owner: str = "", priority: str = "normal", lock_wait_ms: int | None = None) -> Terms:
    """As users say it: `priority` by its name. Raises InvalidArgument."""
    number = PRIORITIES.get(priority)
    if number is None:
        raise InvalidArgument(
            f"priority must be one of {', '.join(PRIORITIES)}, got {priority!r:.40}"
        )
    return Terms(owner=owner, priority=number, lock_wait_ms=lock_wait_ms)
