"""Choices drawn from the one source of chance that a run is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from kv.base.ports import Rng

T = TypeVar("T")


class Chance:
    """`kv.base.ports.Rng` with the questions that workloads and the nemesis ask."""

    __slots__ = ("rng",)

    def __init__(self, rng: Rng) -> None:
        self.rng = rng

    def below(self, bound: int) -> int:
        """Uniform in 0 … bound - 1."""
        return int(self.rng.random() * bound)

    def pick(self, some: Sequence[T]) -> T:
        return some[self.below(len(some))]

    def some(self, of: Sequence[T], count: int) -> list[T]:
        """`count` different ones, in random order."""
        left = list(of)
        return [left.pop(self.below(len(left))) for _ in range(min(count, len(left)))]

    def happens(self, probability: float) -> bool:
        return self.rng.random() < probability

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.rng.random()
