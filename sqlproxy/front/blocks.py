"""DO: the blocks that migrations and ORMs write to make something that may be there already.

    block      BEGIN step; … [EXCEPTION WHEN condition [OR …] THEN step; … …] END
    step       NULL | statement | block | PERFORM query | EXECUTE text | RAISE [level] 'text'
             | IF condition THEN step; … [ELSIF condition THEN …] [ELSE …] END IF

Nothing else of PL/pgSQL: no variables, loops or functions; it is refused by name. Pure.

What is handled leaves nothing of itself. Changes of rows are taken back; a definition is a job of
its own, which is made or not, and nothing takes it back: beside it a block with EXCEPTION holds
nothing that may fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import postgast

from sqlproxy.front.bound.statements import (
    Do,
    DoBlock,
    DoExecute,
    DoHandler,
    DoIf,
    DoRaise,
    DoStep,
)
from sqlproxy.front.syntax.syntax import Node, parse, split
from sqlproxy.values.errors import SYNTAX_ERROR, SqlError, too_deep, unsupported
from sqlproxy.values.words import words

_CONDITIONS: Final = {
    "others": "",
    "connection_exception": "08000",
    "feature_not_supported": "0A000",
    "cardinality_violation": "21000",
    "data_exception": "22000",
    "string_data_right_truncation": "22001",
    "numeric_value_out_of_range": "22003",
    "null_value_not_allowed": "22004",
    "invalid_datetime_format": "22007",
    "datetime_field_overflow": "22008",
    "division_by_zero": "22012",
    "invalid_parameter_value": "22023",
    "invalid_text_representation": "22P02",
    "integrity_constraint_violation": "23000",
    "restrict_violation": "23001",
    "not_null_violation": "23502",
    "foreign_key_violation": "23503",
    "unique_violation": "23505",
    "check_violation": "23514",
    "dependent_objects_still_exist": "2BP01",
    "invalid_schema_name": "3F000",
    "serialization_failure": "40001",
    "deadlock_detected": "40P01",
    "syntax_error_or_access_rule_violation": "42000",
    "syntax_error": "42601",
    "insufficient_privilege": "42501",
    "invalid_name": "42602",
    "duplicate_column": "42701",
    "ambiguous_column": "42702",
    "undefined_column": "42703",
    "undefined_object": "42704",
    "duplicate_object": "42710",
    "duplicate_alias": "42712",
    "duplicate_function": "42723",
    "grouping_error": "42803",
    "datatype_mismatch": "42804",
    "wrong_object_type": "42809",
    "invalid_foreign_key": "42830",
    "cannot_coerce": "42846",
    "undefined_function": "42883",
    "reserved_name": "42939",
    "undefined_table": "42P01",
    "undefined_parameter": "42P02",
    "duplicate_cursor": "42P03",
    "duplicate_database": "42P04",
    "duplicate_prepared_statement": "42P05",
    "duplicate_schema": "42P06",
    "duplicate_table": "42P07",
    "ambiguous_alias": "42P09",
    "invalid_column_reference": "42P10",
    "invalid_table_definition": "42P16",
    "invalid_object_definition": "42P17",
    "indeterminate_datatype": "42P18",
    "object_not_in_prerequisite_state": "55000",
    "object_in_use": "55006",
    "lock_not_available": "55P03",
    "raise_exception": "P0001",
}
_LEVELS: Final = ("debug", "log", "info", "notice", "warning", "exception")
_OTHER: Final = words(
    """
    declare for while loop foreach return exit continue case get assert
    """
)
_REFUSED: Final = words(
    """
    commit rollback begin start savepoint release do copy call declare fetch move close
    """
)
_DEPTH_MAX: Final = 50  # of blocks and IFs in each other
_UNDONE: Final = frozenset(
    {
        "SelectStmt",
        "InsertStmt",
        "UpdateStmt",
        "DeleteStmt",
        "MergeStmt",
        "VariableSetStmt",
        "NotifyStmt",
    }
)
"""Statements that a block with EXCEPTION can take back."""


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    start: int  # bytes
    end: int


_END: Final = _Word("", 0, 0)


def do(body: Node) -> Do:
    """Raises SqlError (0A000, 42601)."""
    given = {part["DefElem"]["defname"]: part["DefElem"]["arg"] for part in body.get("args", ())}
    language = given.get("language", {}).get("String", {}).get("sval", "plpgsql")
    if language != "plpgsql":
        raise unsupported(f"the language {language}")
    return Do(_Reader(given["as"]["String"]["sval"]).read())


def statements(text: str) -> list[str]:
    """Those of a text that DO runs. Raises SqlError (0A000): not in DO."""
    found = split(text)
    for one in found:
        word = one.split(maxsplit=1)[0].lower()
        if word in _REFUSED:
            raise unsupported(f"{word.upper()} in DO")
    return found


class _Reader:
    """Reads a block from its front to its end: `at` is the next word."""

    def __init__(self, text: str) -> None:
        self.raw = text.encode()
        try:
            scanned = postgast.scan(text).tokens
        except postgast.PgQueryError as error:
            raise SqlError(SYNTAX_ERROR, str(error.message)) from None
        found = [(self.raw[t.start : t.end].decode(), t.start, t.end) for t in scanned]
        self.words = [
            _Word(word if word[:1] in "'\"" else word.lower(), start, end)
            for word, start, end in found
            if not word.startswith(("--", "/*"))
        ]
        self.at = self.depth = 0

    def read(self) -> DoBlock:
        """The whole text."""
        if self._next.text != "begin":
            raise _refused(self._next.text)
        found = self._block()
        self._skip(";")
        if self._next is not _END:
            raise _refused(self._next.text)
        return found

    @property
    def _next(self) -> _Word:
        return self._ahead(0)

    def _ahead(self, count: int) -> _Word:
        at = self.at + count
        return self.words[at] if at < len(self.words) else _END

    def _skip(self, word: str) -> None:
        while self._next.text == word and self._next is not _END:
            self.at += 1

    def _take(self, word: str, where: str) -> None:
        if self._next.text != word:
            raise SqlError(SYNTAX_ERROR, f"{where} has no {word.upper()}")
        self.at += 1

    # -- blocks

    def _block(self) -> DoBlock:
        self.at += 1
        steps = self._steps("exception", "end")
        handlers: list[DoHandler] = []
        if self._next.text == "exception":
            self.at += 1
            while self._next.text == "when":
                handlers.append(self._handler())
            if not handlers:
                raise SqlError(SYNTAX_ERROR, "EXCEPTION has no WHEN")
            _check_definitions(steps)
        self._take("end", "BEGIN")
        alone = not any(_is_change(step) for step in _every(steps))
        return DoBlock(steps, tuple(handlers), undoes=bool(handlers) and not alone)

    def _handler(self) -> DoHandler:
        self.at += 1
        states: list[str] = []
        while True:
            states.append(self._condition())
            if self._next.text != "or":
                break
            self.at += 1
        self._take("then", "WHEN")
        return DoHandler(tuple(states), self._steps("when", "end"))

    def _condition(self) -> str:
        """The SQLSTATE that is meant; "": all."""
        word = self._next.text
        self.at += 1
        if word == "sqlstate":
            state = self._next.text.strip("'")
            self.at += 1
            if len(state) == 5 and state.isascii() and state.isalnum():
                return state
            raise SqlError(SYNTAX_ERROR, "invalid SQLSTATE code")
        if word not in _CONDITIONS:
            raise SqlError("42704", f'unrecognized exception condition "{word}"')
        return _CONDITIONS[word]

    # -- steps

    def _steps(self, *ends: str) -> tuple[DoStep, ...]:
        """Until one of these words, where a step might begin."""
        found: list[DoStep] = []
        self.depth += 1
        if self.depth > _DEPTH_MAX:
            raise too_deep()
        while True:
            self._skip(";")
            word = self._next
            if word is _END:
                raise SqlError(SYNTAX_ERROR, "a block of DO has no END")
            if word.text in ends:
                self.depth -= 1
                return tuple(found)
            found += self._step(word.text)

    def _step(self, word: str) -> Sequence[DoStep]:
        if word in _OTHER or word.startswith("<<") or self._ahead(1).text == ":=":
            raise _refused(word)
        match word:
            case "null":
                self.at += 1
                return ()
            case "begin":
                return (self._block(),)
            case "if":
                return (self._if(),)
            case "raise":
                return (self._raise(),)
            case "perform":
                self.at += 1
                return statements("SELECT " + self._text(";"))
            case "execute":
                self.at += 1
                return (DoExecute(f"SELECT ({self._text(';')})"),)
            case _:
                found = statements(self._text(";"))
                for one in found:
                    if (parsed := parse(one)) is not None and parsed.kind == "SelectStmt":
                        raise unsupported(
                            "a query in DO, whose rows go nowhere",
                            hint="PERFORM runs one for what it does.",
                        )
                return found

    def _if(self) -> DoIf:
        """At IF or ELSIF."""
        self.at += 1
        condition = self._text("then")
        if not condition:
            raise SqlError(SYNTAX_ERROR, "IF has no condition")
        self._take("then", "IF")
        then = self._steps("elsif", "elseif", "else", "end")
        otherwise: tuple[DoStep, ...] = ()
        if self._next.text in ("elsif", "elseif"):
            self.depth += 1
            otherwise = (self._if(),)
            self.depth -= 1
            return DoIf(f"SELECT ({condition})", then, otherwise)
        if self._next.text == "else":
            self.at += 1
            otherwise = self._steps("end")
        self._take("end", "IF")
        self._take("if", "END of IF")
        return DoIf(f"SELECT ({condition})", then, otherwise)

    def _raise(self) -> DoRaise:
        self.at += 1
        level = "exception"
        if self._next.text in _LEVELS:
            level = self._next.text
            self.at += 1
        said = self._next.text
        if said[:1] != "'" or self._ahead(1).text not in (";", ""):
            raise unsupported("RAISE with more than a text in DO")
        self.at += 1
        message = said[1:-1].replace("''", "'")
        if "%" in message.replace("%%", ""):
            raise unsupported("RAISE with values in DO")
        return DoRaise(level, message.replace("%%", "%"))

    def _text(self, until: str) -> str:
        """What stands before this word, CASE expressions passed over."""
        first, depth = self.at, 0
        while self._next is not _END:
            word = self._next.text
            if word == until and not depth:
                break
            depth += (word == "case") - (word == "end" and depth > 0)
            self.at += 1
        part = self.words[first : self.at]
        return self.raw[part[0].start : part[-1].end].decode() if part else ""


# -- what can be taken back


def _every(steps: Sequence[DoStep]) -> Iterator[DoStep]:
    """These steps with all that are inside of them."""
    for step in steps:
        yield step
        match step:
            case DoIf():
                yield from _every(step.then)
                yield from _every(step.otherwise)
            case DoBlock():
                yield from _every(step.steps)
                for handler in step.handlers:
                    yield from _every(handler.steps)
            case _:
                pass


def _is_change(step: DoStep) -> bool:
    if not isinstance(step, str):
        return False
    parsed = parse(step)
    return parsed is not None and parsed.kind in _UNDONE


def _is_definition(step: DoStep) -> bool:
    return isinstance(step, DoExecute) or (isinstance(step, str) and not _is_change(step))


def _check_definitions(steps: Sequence[DoStep]) -> None:
    """Raises SqlError (0A000): a definition would stay although what comes with it failed."""
    if not any(_is_definition(step) for step in _every(steps)):
        return
    failing = [s for s in steps if not (isinstance(s, DoRaise) and s.level != "exception")]
    if len(failing) > 1:
        raise unsupported(
            "EXCEPTION after a definition and more statements of a DO block",
            hint="A definition is not taken back: write BEGIN … EXCEPTION … END for each.",
        )
    for step in failing:
        if isinstance(step, DoIf):
            _check_definitions(step.then)
            _check_definitions(step.otherwise)
        elif isinstance(step, DoBlock):
            _check_definitions(step.steps)
            for handler in step.handlers:
                _check_definitions(handler.steps)


def _refused(word: str) -> SqlError:
    return unsupported(
        f"DO with {word.upper() or 'nothing'}",
        hint="There are statements, blocks with EXCEPTION, IF, PERFORM, EXECUTE of a text, and "
        "RAISE of one; what needs more of PL/pgSQL is a procedure, or the program's.",
    )
