"""Which operator or function is meant, and which casts are implied: PostgreSQL's rules
(parse_func.c, parse_oper.c, parse_coerce.c of version 15; chapter 10 of its manual) over the rows
of `registry`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from sqlproxy.front.types.registry import (
    CASTS,
    COMPATIBLE_POLYMORPHIC,
    FUNCTIONS,
    OPERATORS,
    POLYMORPHIC,
    SIMPLE_POLYMORPHIC,
    CastRow,
    Proc,
    array_of,
    category,
    element_of,
    format_type,
    preferred,
)
from sqlproxy.pg import oids
from sqlproxy.values.errors import (
    AMBIGUOUS_FUNCTION,
    DATATYPE_MISMATCH,
    UNDEFINED_FUNCTION,
    UNDEFINED_OBJECT,
    SqlError,
)

_VECTORS: Final = (oids.INT2VECTOR, oids.OIDVECTOR)
IMPLICIT: Final = "i"
ASSIGNMENT: Final = "a"
EXPLICIT: Final = "e"
_RANK: Final = {"i": 0, "a": 1, "e": 2}
NO_MATCH_OPERATOR: Final = (
    "No operator matches the given name and argument types. You might need to add explicit type "
    "casts."
)
NO_MATCH_FUNCTION: Final = (
    "No function matches the given name and argument types. You might need to add explicit type "
    "casts."
)


@dataclass(frozen=True, slots=True)
class Resolved:
    """`args`: the types to convert the arguments to; `result`: the type of the value."""

    proc: Proc
    args: tuple[int, ...]
    result: int
    variadic: bool = False  # the last arguments are gathered into an array


@lru_cache(maxsize=8_192)
def pathway(source: int, target: int, context: str) -> CastRow | None:
    """How a value of one type becomes one of another in a context; None: not at all. Method `a`:
    each element.
    """
    if source == target:
        return CastRow("i", "b", "")
    if row := CASTS.get((source, target)):
        return row if _RANK[context] >= _RANK[row.context] else None
    from_element, to_element = element_of(source), element_of(target)
    if from_element and to_element and target not in _VECTORS:  # they would catch other arrays
        inner = pathway(from_element, to_element, context)
        if inner is not None:
            return CastRow(inner.context, "b" if inner.method == "b" else "a", "")
    if target not in POLYMORPHIC and source != oids.UNKNOWN:
        if context != IMPLICIT and category(target) == "S":
            return CastRow("a", "i", "")
        if context == EXPLICIT and category(source) == "S" and target != oids.RECORD:
            return CastRow("e", "i", "")
    return None


def can_coerce(source: int, target: int, context: str = IMPLICIT) -> bool:
    """Whether a value may go there; an undecided literal may go anywhere."""
    if source in (target, oids.UNKNOWN) or target == oids.ANY or target in POLYMORPHIC:
        return True
    return pathway(source, target, context) is not None


def can_coerce_all(given: Sequence[int], wanted: Sequence[int]) -> bool:
    if not all(can_coerce(a, b) for a, b in zip(given, wanted, strict=True)):
        return False
    if any(w in POLYMORPHIC for w in wanted):
        try:
            _decided(given, wanted)
        except SqlError:
            return False
    return True


def operator(name: str, left: int, right: int, pos: int = 0) -> Resolved:
    """`left` = 0: a prefix operator. Raises SqlError 42883, 42725."""
    found = _operator(name, left, right)
    if isinstance(found, Resolved):
        return found
    shown = (
        f"{format_type(left)} {name} {format_type(right)}"
        if left
        else f"{name} {format_type(right)}"
    )
    if found == "ambiguous":
        raise SqlError(
            AMBIGUOUS_FUNCTION,
            f"operator is not unique: {shown}",
            hint="Could not choose a best candidate operator. You might need to add explicit "
            "type casts.",
            position=pos,
        )
    raise SqlError(
        UNDEFINED_FUNCTION,
        f"operator does not exist: {shown}",
        hint=NO_MATCH_OPERATOR,
        position=pos,
    )


@lru_cache(maxsize=8_192)
def _operator(name: str, left: int, right: int) -> Resolved | str:
    arity = 2 if left else 1
    candidates = [p for p in OPERATORS.get(name, ()) if len(p.args) == arity]
    given = (left, right) if left else (right,)
    if left and oids.UNKNOWN in given and left != right:
        # One of the two is an undecided literal: take it for the other's type if such an operator
        # exists.
        known = right if left == oids.UNKNOWN else left
        if exact := _exact(candidates, (known, known)):
            return _resolved(exact, (known, known))
    if exact := _exact(candidates, given):
        return _resolved(exact, given)
    possible = [p for p in candidates if can_coerce_all(given, p.args)]
    best = _select([(p, p.args) for p in possible], given)
    if best is None:
        return "ambiguous" if len(possible) > 1 else "none"
    return _resolved(best[0], given)


def _exact(candidates: Sequence[Proc], given: tuple[int, ...]) -> Proc | None:
    return next((p for p in candidates if p.args == given), None)


def _resolved(proc: Proc, given: Sequence[int]) -> Resolved:
    if not any(a in POLYMORPHIC for a in (*proc.args, proc.result)):
        return Resolved(proc, proc.args, proc.result)
    return Resolved(proc, *_polymorphic(given, proc.args, proc.result))


Candidate = tuple[Proc, tuple[int, ...]]
_Types = tuple[tuple[int, ...], int]


def function(
    name: str, given: Sequence[int], pos: int = 0, *, variadic: bool = False, written: str = ""
) -> Resolved:
    """The function for these types; `written`: with its schema. Raises 42883, 42725."""
    found = _function(name, tuple(given), variadic)
    if isinstance(found, Resolved):
        return found
    shown = f"{written or name}({', '.join(format_type(t) for t in given)})"
    if found == "ambiguous":
        raise SqlError(
            AMBIGUOUS_FUNCTION,
            f"function {shown} is not unique",
            hint="Could not choose a best candidate function. You might need to add explicit "
            "type casts.",
            position=pos,
        )
    raise SqlError(
        UNDEFINED_FUNCTION, f"function {shown} does not exist", hint=NO_MATCH_FUNCTION, position=pos
    )


@lru_cache(maxsize=8_192)
def _function(name: str, given: tuple[int, ...], variadic: bool) -> Resolved | str:
    return among(FUNCTIONS.get(name, ()), given, variadic)


def among(procs: Iterable[Proc], given: tuple[int, ...], variadic: bool = False) -> Resolved | str:
    """Which of these is meant; "none" or "ambiguous"."""
    count = len(given)
    candidates: list[Candidate] = []
    expanded: set[int] = set()
    for proc in procs:
        args = proc.args
        if proc.variadic and not variadic and count >= len(args):
            spread = oids.ANY if proc.variadic == oids.ANY else proc.variadic
            candidates.append((proc, (*args[:-1], *[spread] * (count - len(args) + 1))))
            expanded.add(len(candidates) - 1)
        elif len(args) - proc.defaults <= count <= len(args) and (not proc.variadic or variadic):
            candidates.append((proc, args[:count]))
    # Of two with the same types the one that needs no spreading is meant.
    plain = {c[1] for i, c in enumerate(candidates) if i not in expanded}
    candidates = [c for i, c in enumerate(candidates) if i not in expanded or c[1] not in plain]
    for candidate in candidates:
        if candidate[1] == given:
            return _chosen(candidate, given)
    possible = [c for c in candidates if can_coerce_all(given, c[1])]
    best = possible[0] if len(possible) == 1 else _select(possible, given)
    if best is None:
        return "ambiguous" if len(possible) > 1 else "none"
    return _chosen(best, given)


def _chosen(candidate: Candidate, given: Sequence[int]) -> Resolved:
    proc, args = candidate
    spread = bool(proc.variadic) and len(args) >= len(proc.args) and args[-1] != proc.args[-1]
    if any(a in POLYMORPHIC for a in (*args, proc.result)):
        return Resolved(proc, *_polymorphic(given, args, proc.result), spread)
    return Resolved(proc, args, proc.result, spread)


def _select(candidates: Sequence[Candidate], given: Sequence[int]) -> Candidate | None:
    """func_select_candidate: the best of several that all could be meant, or None."""
    left = list(candidates)
    if len(left) <= 1:
        return left[0] if left else None
    known = [t != oids.UNKNOWN for t in given]
    categories = [category(t) if k else "" for t, k in zip(given, known, strict=True)]

    def exact(c: Candidate) -> int:
        return sum(k and t == a for t, a, k in zip(given, c[1], known, strict=True))

    def exact_or_preferred(c: Candidate) -> int:
        return sum(
            k and (t == a or (preferred(a) and category(a) == cat))
            for t, a, k, cat in zip(given, c[1], known, categories, strict=True)
        )

    for score in (exact, exact_or_preferred):
        left = _best(left, score)
        if len(left) == 1:
            return left[0]
    if all(known):
        return None
    narrowed = _by_category(left, known)
    if narrowed is not None:
        left = narrowed
        if len(left) == 1:
            return left[0]
    # The last rule: take undecided literals for the one type that all others have.
    others = {t for t, k in zip(given, known, strict=True) if k}
    if len(others) == 1:
        (common,) = others
        fitting = [c for c in left if can_coerce_all([common] * len(given), c[1])]
        if len(fitting) == 1:
            return fitting[0]
    return None


def _best(candidates: list[Candidate], score: Callable[[Candidate], int]) -> list[Candidate]:
    scores = [score(c) for c in candidates]
    top = max(scores)
    return [c for c, s in zip(candidates, scores, strict=True) if s == top]


def _by_category(candidates: list[Candidate], known: Sequence[bool]) -> list[Candidate] | None:
    """Narrow by the category that the undecided arguments' candidates accept: string, if any does;
    None: no way.
    """
    slots: dict[int, tuple[str, bool]] = {}
    for i, is_known in enumerate(known):
        if is_known:
            continue
        wanted = [(category(c[1][i]), preferred(c[1][i])) for c in candidates]
        if any(cat == "S" for cat, _ in wanted):
            slots[i] = ("S", any(p for cat, p in wanted if cat == "S"))
        elif len({cat for cat, _ in wanted}) == 1:
            slots[i] = (wanted[0][0], any(p for _, p in wanted))
        else:
            return None
    return [
        c
        for c in candidates
        if all(
            category(c[1][i]) == cat and (not has_preferred or preferred(c[1][i]))
            for i, (cat, has_preferred) in slots.items()
        )
    ] or None


def _contradiction(message: str) -> SqlError:
    """Polymorphic arguments do not go together."""
    return SqlError(DATATYPE_MISMATCH, message)


def _polymorphic(given: Sequence[int], wanted: Sequence[int], result: int) -> _Types:
    """The types that stand for anyelement and its like. Raises SqlError."""
    element, array, common = _decided(given, wanted)
    if not common and any(
        have == oids.UNKNOWN and want in POLYMORPHIC
        for have, want in zip(given, wanted, strict=True)
    ):
        common = oids.TEXT
    if not element and SIMPLE_POLYMORPHIC & {*wanted, result}:
        raise SqlError(
            DATATYPE_MISMATCH,
            "could not determine polymorphic type because input has type unknown",
        )
    types = {
        oids.ANYELEMENT: element,
        oids.ANYNONARRAY: element,
        oids.ANYENUM: element,
        oids.ANYARRAY: array or array_of(element),
        oids.ANYCOMPATIBLE: common,
        oids.ANYCOMPATIBLENONARRAY: common,
        oids.ANYCOMPATIBLEARRAY: array_of(common),
    }
    return tuple(types.get(w, w) for w in wanted), types.get(result, result)


def _decided(given: Sequence[int], wanted: Sequence[int]) -> tuple[int, int, int]:
    """anyelement, anyarray and anycompatible, 0 = nothing says; what is unknown says nothing.
    Raises SqlError.
    """
    said = [(have, want) for have, want in zip(given, wanted, strict=True) if have != oids.UNKNOWN]
    compatible = [_compatible(have, want) for have, want in said if want in COMPATIBLE_POLYMORPHIC]
    array = _same(said, frozenset((oids.ANYARRAY,)), "anyarray")
    element = _same(said, SIMPLE_POLYMORPHIC - {oids.ANYARRAY}, "anyelement")
    if array:
        inner = element_of(array)
        if not inner:
            raise _contradiction(
                f"argument declared anyarray is not an array but type {format_type(array)}"
            )
        if element not in (0, inner):
            raise _contradiction(
                "argument declared anyarray is not consistent with argument declared anyelement"
            )
        element = inner
    if oids.ANYNONARRAY in wanted and element_of(element):
        raise _contradiction(
            f"type matched to anynonarray is an array type: {format_type(element)}"
        )
    if oids.ANYENUM in wanted and category(element) != "E":
        raise _contradiction(f"type matched to anyenum is not an enum type: {format_type(element)}")
    common = common_or_none(compatible) if compatible else 0
    if common is None or (common and not all(can_coerce(t, common) for t in compatible)):
        raise _contradiction("arguments of anycompatible family cannot be cast to a common type")
    return element, array, common


def _same(said: Iterable[tuple[int, int]], family: frozenset[int], name: str) -> int:
    """The one type that all arguments of a family have; 0: there are none."""
    types = {have for have, want in said if want in family}
    if len(types) > 1:
        raise _contradiction(f'arguments declared "{name}" are not all alike')
    return types.pop() if types else 0


def _compatible(have: int, want: int) -> int:
    """What an argument says of anycompatible."""
    element = element_of(have)
    if want == oids.ANYCOMPATIBLEARRAY and not element:
        raise _contradiction(
            f"argument declared {format_type(want)} is not an array but type {format_type(have)}"
        )
    if want == oids.ANYCOMPATIBLENONARRAY and element:
        raise _contradiction(
            f"argument declared {format_type(want)} is an array: {format_type(have)}"
        )
    return element if want == oids.ANYCOMPATIBLEARRAY else have


def common_or_none(types: Sequence[int]) -> int | None:
    """select_common_type without words; None: there is none."""
    best, odd = _common(types)
    return None if odd else best


def _common(types: Sequence[int]) -> tuple[int, int]:
    """The best type, of those before the first that does not fit it, which follows (0: all do)."""
    types = [t for t in types if t != oids.UNKNOWN]
    if not types:
        return oids.TEXT, 0
    best = types[0]
    if all(t == best for t in types):
        return best, 0
    for other in types[1:]:
        if other == best:
            continue
        if category(other) != category(best):
            return best, other
        if not preferred(best) and can_coerce(best, other) and not can_coerce(other, best):
            best = other
    return best, 0


def common_type(types: Sequence[int], context: str, pos: int = 0) -> int:
    """The one type of all branches of CASE, VALUES, UNION, ARRAY, …; literals alone are text.
    Raises 42804.
    """
    best, odd = _common(types)
    if not odd:
        return best
    raise SqlError(
        DATATYPE_MISMATCH,
        f"{context} types {format_type(best)} and {format_type(odd)} cannot be matched",
        position=pos,
    )


def array_type(oid: int, pos: int = 0) -> int:
    """Raises SqlError 42704: nothing is an array of it."""
    if found := array_of(oid):
        return found
    raise SqlError(
        UNDEFINED_OBJECT,
        f"could not find array type for data type {format_type(oid)}",
        position=pos,
    )


def length_function(oid: int) -> bool:
    """Whether a modifier of this type changes values."""
    return (oid, oid) in CASTS
