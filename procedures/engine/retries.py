"""Retry policies of steps: which failures let a step run again, how often, and after what pause.
Pure.

A policy is for what the step itself does wrong or meets outside: an exception, an attempt that took
too long, a write that is refused. What is nobody's fault (a conflict, no leader) is repeated with
or without a policy, and counts for none. `fail(…)` is the step's own word: it is never repeated.

How often a step has failed, when it runs again and why it failed last is in the record
(`Record.trying`): a restart or another worker goes on with the same count and the same time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kv.base.errors import InvalidArgument, KvorumError
from kv.base.limits import (
    NAME_CHARS_MAX,
    PROCEDURE_ATTEMPTS_MAX,
    PROCEDURE_NEVER_MAX,
    PROCEDURE_TIMEOUT_MS_MAX,
)


@dataclass(frozen=True, slots=True)
class Retry:
    """See `retry`."""

    attempts: int
    first_ms: int
    factor: float
    most_ms: int
    jitter: float
    codes: frozenset[str]
    kinds: tuple[type[BaseException], ...]

    def allows(self, code: str, error: BaseException | None = None) -> bool:
        """Whether this failure is one after which the step may run again."""
        return code not in self.codes and not isinstance(error, self.kinds)

    @property
    def wire(self) -> tuple[int, int, float, int, float]:
        """What is needed of it once it allows: another process has its classes."""
        return self.attempts, self.first_ms, self.factor, self.most_ms, self.jitter

    @staticmethod
    def of(wire: tuple[int, int, float, int, float]) -> Retry:
        return Retry(*wire, frozenset(), ())

    def left(self, failed: int) -> bool:
        """Whether there is one more attempt after so many that failed."""
        return not self.attempts or failed < self.attempts

    def pause_ms(self, failed: int, chance: float) -> int:
        """Before the next attempt; `chance`: from 0 to 1, not 1."""
        try:
            pause = min(float(self.most_ms), self.first_ms * self.factor ** (failed - 1))
        except OverflowError:
            pause = float(self.most_ms)
        return round(pause * (1 - self.jitter * chance))


def retry(
    *,
    attempts: int = 5,
    first_ms: int = 100,
    factor: float = 2.0,
    most_ms: int = 60_000,
    jitter: float = 0.5,
    never: Iterable[str | type[BaseException]] = (),
) -> Retry:
    """A policy for `@step(retry=…)`, or for all steps of a type that have none of their own
    (`@procedure(…, retry=…)`).

    attempts  how often it runs at most, the first time included; 0 = until its time is over, or
              somebody aborts it
    first_ms  the pause after the first failure; it grows by `factor` with each, up to `most_ms`
    jitter    up to which part of a pause is left out by chance: those that failed together do not
              come back together
    never     codes of errors, and classes of exceptions, after which it does not run again
    Raises InvalidArgument (PROCEDURE_DECLARATION).
    """
    named = tuple(never) if not isinstance(never, str | type) else (never,)
    _whole("attempts", attempts, PROCEDURE_ATTEMPTS_MAX)
    _whole("first_ms", first_ms, PROCEDURE_TIMEOUT_MS_MAX)
    _whole("most_ms", most_ms, PROCEDURE_TIMEOUT_MS_MAX)
    if most_ms < first_ms:
        raise _bad(f"most_ms ({most_ms}) must not be less than first_ms ({first_ms})")
    if type(factor) not in (int, float) or not 1 <= factor <= 1_000:
        raise _bad(f"factor must be 1 to 1000, got {factor!r:.40}")
    if type(jitter) not in (int, float) or not 0 <= jitter <= 1:
        raise _bad(f"jitter must be 0 to 1, got {jitter!r:.40}")
    if len(named) > PROCEDURE_NEVER_MAX:
        raise _bad(f"never names {len(named)} errors, the limit is {PROCEDURE_NEVER_MAX}")
    for one in named:
        code = isinstance(one, str) and 0 < len(one) <= NAME_CHARS_MAX
        if not code and not (isinstance(one, type) and issubclass(one, BaseException)):
            raise _bad(f"never has codes of errors and classes of exceptions, not {one!r:.80}")
    codes = frozenset(one for one in named if isinstance(one, str))
    kinds = tuple(one for one in named if isinstance(one, type))
    return Retry(attempts, first_ms, float(factor), most_ms, float(jitter), codes, kinds)


def _whole(what: str, value: object, most: int) -> None:
    if type(value) is not int or not 0 <= value <= most:
        raise _bad(f"{what} must be 0 to {most}, got {value!r:.40}")


def _bad(why: str) -> KvorumError:
    return InvalidArgument(f"a retry policy: {why}", code="PROCEDURE_DECLARATION")
