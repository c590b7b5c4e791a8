"""DO: the blocks that migrations and ORMs write to make something that may be there already.

    BEGIN statement; … END
    BEGIN statement; EXCEPTION WHEN duplicate_object [OR …] THEN NULL; END
    BEGIN IF condition THEN statement; … [ELSE statement; …] END IF; … END

Nothing else of PL/pgSQL: no variables, loops, RAISE or functions; it is refused by name. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import postgast

from sqlproxy.front.bound.statements import Do, DoIf
from sqlproxy.front.syntax.syntax import Node, split
from sqlproxy.values.errors import SYNTAX_ERROR, SqlError, unsupported
from sqlproxy.values.words import words

_CONDITIONS: Final = {
    "duplicate_object": "42710",
    "duplicate_table": "42P07",
    "duplicate_column": "42701",
    "duplicate_schema": "42P06",
    "duplicate_database": "42P04",
    "duplicate_function": "42723",
    "duplicate_alias": "42712",
    "undefined_table": "42P01",
    "undefined_column": "42703",
    "undefined_object": "42704",
    "undefined_function": "42883",
    "unique_violation": "23505",
    "foreign_key_violation": "23503",
    "check_violation": "23514",
    "not_null_violation": "23502",
    "invalid_table_definition": "42P16",
    "insufficient_privilege": "42501",
    "feature_not_supported": "0A000",
    "others": "",
}
_OTHER: Final = words(
    """
    declare for while loop foreach raise perform return exit continue case elsif elseif get assert
    """
)


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    start: int  # bytes
    end: int


def do(body: Node) -> Do:
    """Raises SqlError (0A000, 42601)."""
    given = {part["DefElem"]["defname"]: part["DefElem"]["arg"] for part in body.get("args", ())}
    language = given.get("language", {}).get("String", {}).get("sval", "plpgsql")
    if language != "plpgsql":
        raise unsupported(f"the language {language}")
    return _Block(given["as"]["String"]["sval"]).read()


class _Block:
    def __init__(self, text: str) -> None:
        self.raw = text.encode()
        try:
            scanned = postgast.scan(text).tokens
        except postgast.PgQueryError as error:
            raise SqlError(SYNTAX_ERROR, str(error.message)) from None
        words = [(self.raw[t.start : t.end].decode(), t.start, t.end) for t in scanned]
        self.words = [
            _Word(word if word[:1] in "'\"" else word.lower(), start, end)
            for word, start, end in words
            if not word.startswith(("--", "/*"))
        ]

    def read(self) -> Do:
        words = self.words
        while words and words[-1].text == ";":
            words = words[:-1]
        if len(words) < 2 or words[0].text != "begin" or words[-1].text != "end":
            raise _refused(words[0].text if words else "")
        words = words[1:-1]
        at = next(
            (
                i
                for i, one in enumerate(words)
                if one.text == "exception" and self._starts(words, i)
            ),
            len(words),
        )
        handled = self._handled(words[at + 1 :]) if at < len(words) else None
        steps = self._steps(words[:at])
        if handled is not None and (len(steps) != 1 or isinstance(steps[0], DoIf)):
            raise unsupported(
                "EXCEPTION after more than one statement of a DO block",
                hint="Write a block for each statement.",
            )
        return Do(tuple(steps), handled)

    @staticmethod
    def _starts(words: Sequence[_Word], at: int) -> bool:
        """Whether a statement may begin here."""
        return at == 0 or words[at - 1].text in (";", "then", "else")

    def _steps(self, words: Sequence[_Word]) -> list[str | DoIf]:
        found: list[str | DoIf] = []
        at = 0
        while at < len(words):
            if words[at].text in (";", "null"):
                at += 1
            elif words[at].text == "if":
                end = self._end_of_if(words, at)
                found.append(self._if(words[at + 1 : end]))
                at = end + 2
            else:
                if words[at].text in _OTHER or (at + 1 < len(words) and words[at + 1].text == ":="):
                    raise _refused(words[at].text)
                end = next((i for i in range(at, len(words)) if words[i].text == ";"), len(words))
                found += self._statements(words[at:end])
                at = end
        return found

    def _end_of_if(self, words: Sequence[_Word], at: int) -> int:
        """Where END IF is."""
        depth = 0
        for i in range(at, len(words)):
            if words[i].text == "if" and words[i - 1].text == "end" and i > at:
                depth -= 1
                if not depth:
                    return i - 1
            elif words[i].text == "if" and (i == at or self._starts(words, i)):
                depth += 1
        raise SqlError(SYNTAX_ERROR, "IF has no END IF")

    def _if(self, words: Sequence[_Word]) -> DoIf:
        """What stands between IF and END IF."""
        then = next((i for i, one in enumerate(words) if one.text == "then"), None)
        if then is None:
            raise SqlError(SYNTAX_ERROR, "IF has no THEN")
        depth, other = 0, len(words)
        for i in range(then + 1, len(words)):
            if words[i].text == "if" and self._starts(words, i):
                depth += 1
            elif words[i].text == "if" and words[i - 1].text == "end":
                depth -= 1
            elif words[i].text in ("elsif", "elseif"):
                raise _refused(words[i].text)
            elif words[i].text == "else" and not depth and self._starts(words, i):
                other = i
        condition = self._text(words[:then])
        return DoIf(
            f"SELECT ({condition})",
            tuple(self._steps(words[then + 1 : other])),
            tuple(self._steps(words[other + 1 :])),
        )

    def _text(self, words: Sequence[_Word]) -> str:
        return self.raw[words[0].start : words[-1].end].decode() if words else ""

    def _statements(self, words: Sequence[_Word]) -> list[str]:
        if words[0].text in ("select", "values", "table"):
            raise unsupported("a query in DO, whose rows go nowhere", hint="PERFORM is not there.")
        if words[0].text in ("commit", "rollback", "begin", "savepoint", "do", "execute"):
            raise unsupported(f"{words[0].text.upper()} in DO")
        return split(self._text(words))

    def _handled(self, words: Sequence[_Word]) -> tuple[str, ...]:
        """The SQLSTATEs of WHEN … THEN NULL; "": all."""
        found: list[str] = []
        at = 0
        while at < len(words):
            if words[at].text == ";":
                at += 1
                continue
            if words[at].text != "when":
                raise _refused(words[at].text)
            then = next((i for i in range(at, len(words)) if words[i].text == "then"), None)
            if then is None or [w.text for w in words[then + 1 : then + 2]] not in (["null"], []):
                raise unsupported("a handler in DO that does more than NULL")
            for one in [w.text for w in words[at + 1 : then] if w.text not in ("or", "sqlstate")]:
                state = one.strip("'") if one.startswith("'") else _CONDITIONS.get(one)
                if state is None:
                    raise SqlError("42704", f'unrecognized exception condition "{one}"')
                found.append(state)
            at = then + 2
        return tuple(found)


def _refused(word: str) -> SqlError:
    return unsupported(
        f"DO with {word.upper() or 'nothing'}",
        hint="There are blocks of statements, IF … THEN … END IF, and EXCEPTION WHEN … THEN NULL.",
    )
