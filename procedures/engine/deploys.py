"""Which version of a type new procedures begin with, and what a version by code is. Pure.

    default   … all of them; 0 = the newest that is not drained
    ramp      … but `percent` of them this one, by their id: the same ids whoever decides, and who
              has it at 10 percent has it at 20, too
    drained   … none of them these

A version is a number that its author gives, or (`version="code"`) is made of the code itself: then
it is at least BY_CODE, and the one that was declared last is the newest. Of a type that has both,
the highest number is newer than the code that was declared before it.
"""

from __future__ import annotations

import inspect
import io
import textwrap
import tokenize
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kv.base.errors import InvalidArgument
from procedures.engine.plain_data import Plain
from procedures.engine.used_code import used_code

CODE: Final = "code"
BY_CODE: Final = 1 << 31
_MIX: Final = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: neighbours are far apart (Knuth, 6.4)
_WORD: Final = (1 << 64) - 1
_IGNORED: Final = frozenset({tokenize.COMMENT, tokenize.NL})
_OPENED: Final = frozenset({"FSTRING_START", "TSTRING_START"})
_CLOSED: Final = frozenset({"FSTRING_END", "TSTRING_END"})


class Deploy(msgspec.Struct, frozen=True, array_like=True):
    """Of one type. `previous`: the default before, for who rolls back."""

    default: int = 0
    ramp: int = 0
    percent: float = 0.0
    drained: tuple[int, ...] = ()
    previous: int = 0


NONE: Final = Deploy()


def share(id: int) -> float:
    """From 0 to below 100: where an id is among all, the same for ever."""
    return ((id * _MIX) & _WORD) / (1 << 64) * 100


def newest(since: Mapping[int, int], drained: Iterable[int] = ()) -> int:
    """Of these versions; `since`: when each was declared. All are drained: none is (0)."""
    return next(reversed(in_order(set(since) - set(drained), since)), 0)


def in_order(versions: Iterable[int], since: Mapping[int, int]) -> list[int]:
    """Those by code and the highest number, the newest last. Numbers have their own order: a worker
    that serves a lower one, whenever it was declared, makes nothing new.
    """
    number = max((v for v in versions if v < BY_CODE), default=0)
    beside = [number] if number else []
    return sorted([*beside, *(v for v in versions if v >= BY_CODE)], key=lambda v: (since[v], v))


def chosen(deploy: Deploy, since: Mapping[int, int], id: int) -> int:
    """The version that the procedure of this id begins with; 0 = there is none."""
    if deploy.ramp in since and id and share(id) < deploy.percent:
        return deploy.ramp
    return _base(deploy, since)


def given_out(deploy: Deploy, since: Mapping[int, int]) -> dict[int, float]:
    """Versions that new ones begin with → how many percent."""
    base = _base(deploy, since)
    ramped = deploy.percent if deploy.ramp in since else 0.0
    if not ramped or deploy.ramp == base:
        return {base: 100.0} if base else {}
    return {deploy.ramp: ramped, **({base: 100.0 - ramped} if ramped < 100 and base else {})}


def changed(deploy: Deploy, since: Mapping[int, int], said: Plain) -> Deploy:
    """The settings after a change; what is not said stays. Raises InvalidArgument."""
    there = ", ".join(map(str, sorted(since))) or "none"
    for what in ("default", "ramp", "drain", "undrain"):
        version = said.get(what)
        if version is None or (version == 0 and what in ("default", "ramp")):
            continue
        if type(version) is not int or version not in since:
            raise InvalidArgument(f"{what}: there is no version {version!r:.40} (there: {there})")
    percent = said.get("percent", None if said.get("ramp") is None else deploy.percent)
    if percent is not None and (type(percent) not in (int, float) or not 0 <= percent <= 100):
        raise InvalidArgument(f"percent must be 0 to 100, got {percent!r:.40}")
    drained = set(deploy.drained) & set(since)
    drained |= {said["drain"]} if said.get("drain") else set()
    drained -= {said["undrain"]} if said.get("undrain") else set()
    default, ramp = _or(said.get("default"), deploy.default), _or(said.get("ramp"), deploy.ramp)
    if default in drained and said.get("drain") == default and said.get("default") is None:
        default = 0  # the newest of the others
    for what, version in (("default", default), ("ramp", ramp)):
        if version in drained:
            raise InvalidArgument(f"{what}: version {version} is drained: it has no new ones")
    before = _base(deploy, since)
    after = Deploy(
        default, ramp, float(_or(percent, deploy.percent)) if ramp else 0.0, tuple(sorted(drained))
    )
    if not given_out(after, since):
        raise InvalidArgument(f"all versions would be drained ({there}): new ones need one")
    moved = _base(after, since) != before
    return msgspec.structs.replace(after, previous=before if moved else deploy.previous)


def rolled_back(deploy: Deploy, since: Mapping[int, int]) -> Deploy:
    """New ones begin with what they began with before. Raises InvalidArgument."""
    if not deploy.ramp and not deploy.previous:
        left = newest(since, {*deploy.drained, _base(deploy, since)})
    else:  # a ramp has not become the default yet
        left = _base(deploy, since) if deploy.ramp else deploy.previous
    if left not in since:
        raise InvalidArgument("there is no version before this one: set the default")
    drained = tuple(v for v in deploy.drained if v != left)
    return Deploy(left, 0, 0.0, drained, _base(deploy, since))


def code_version(parts: Mapping[str, Callable[..., object]]) -> int:
    """The version that stands for this code: of its words, not of its comments and empty lines; and
    of what it uses of its own module (used_code.py). Raises InvalidArgument: there is no source.
    """
    crc = 0
    for name, fn in sorted(parts.items()):
        try:
            source = textwrap.dedent(inspect.getsource(fn))
        except (OSError, TypeError) as error:
            raise InvalidArgument(
                f'version="code" of {name}: its source cannot be read ({error}); give a number'
            ) from error
        crc = _sum(name, source, crc)
    for name, source in used_code(parts.values()):
        crc = _sum(name, source, crc)
    return crc | BY_CODE


def _sum(name: str, source: str, crc: int) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return zlib.crc32("\x00".join([name, *words(source, tokens)]).encode(), crc)


def words(source: str, tokens: Iterable[tokenize.TokenInfo]) -> Iterator[str]:
    """What is said in it, whichever Python reads it: since 3.12 an f-string is many tokens; before
    it was one, as other strings are.
    """
    lines = list(io.StringIO(source))
    depth, began = 0, (0, 0)
    for token in tokens:
        kind = tokenize.tok_name[token.type]
        if kind in _OPENED:
            began = began if depth else token.start
            depth += 1
        elif kind in _CLOSED:
            depth -= 1
            if not depth:
                yield _between(lines, began, token.end)
        elif not depth and token.type not in _IGNORED:
            yield token.string


def _between(lines: Sequence[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    """Two places: a line from 1, a column from 0."""
    cut = list(lines[start[0] - 1 : end[0]])
    cut[-1] = cut[-1][: end[1]]
    cut[0] = cut[0][start[1] :]
    return "".join(cut)


def _base(deploy: Deploy, since: Mapping[int, int]) -> int:
    return deploy.default if deploy.default in since else newest(since, _not_new(deploy))


def _not_new(deploy: Deploy) -> tuple[int, ...]:
    """Which are not chosen for being the newest: one that is ramped up is not yet for all."""
    return (*deploy.drained, deploy.ramp) if deploy.percent < 100 else deploy.drained


def _or(said: object, else_: object) -> Any:
    return else_ if said is None else said
