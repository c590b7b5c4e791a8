"""What a checker finds: a broken promise, in words, with the operations that show it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Anomaly:
    """`kind` is a short stable name ("lost-update", "G-single"); `operations` are ids of a history
    (`Operation.id`), in the order in which the text speaks of them.
    """

    kind: str
    text: str
    operations: tuple[int, ...] = ()
