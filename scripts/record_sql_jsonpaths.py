"""Asks a real PostgreSQL 15 what random paths of jsonpath find in random documents.

    python scripts/record_sql_jsonpaths.py "host=127.0.0.1 port=5432 user=postgres"

Writes tests/sqlproxy/front/jsonpaths.json: [path, document, vars, its text, what each of `CALLS`
answers]; an answer is a list of texts, or {"error": SQLSTATE, "message": …}. `random_paths` is what
the test compares with, too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Final

import psycopg
from psycopg.pq import DiagnosticField, ExecStatus
from psycopg.pq.abc import PGconn

TARGET: Final = Path(__file__).parent.parent / "tests" / "sqlproxy" / "front" / "jsonpaths.json"
MANY: Final = 900
MANY_DATETIMES: Final = 400
ZONE: Final = "Asia/Kolkata"  # one without summer time: of a time of day today's offset counts
CALLS: Final = {
    "query": "jsonb_path_query($1::jsonb, $2::jsonpath, $3::jsonb)",
    "query silent": "jsonb_path_query($1::jsonb, $2::jsonpath, $3::jsonb, true)",
    "exists": "jsonb_path_exists($1::jsonb, $2::jsonpath, $3::jsonb)",
    "match": "jsonb_path_match($1::jsonb, $2::jsonpath, $3::jsonb)",
    "exists silent": "jsonb_path_exists($1::jsonb, $2::jsonpath, $3::jsonb, true)",
    "match silent": "jsonb_path_match($1::jsonb, $2::jsonpath, $3::jsonb, true)",
    "query tz": "jsonb_path_query_tz($1::jsonb, $2::jsonpath, $3::jsonb)",
    "match tz": "jsonb_path_match_tz($1::jsonb, $2::jsonpath, $3::jsonb, true)",
}
_SCALARS: Final = (1, 2, 0, -1, 1.5, 2.50, 10, "a", "b", "abc", "1", "x y", True, None, "", [], {})
_NUMBERS: Final = ("1", "2", "0", "1.5", "10", "-1", ".5", "3")
_LEVELS: Final = ("", "{1}", "{0 to 1}", "{last}", "{1 to last}", "{2}")
_HEADS: Final = ('"a"', '"abc"', "null", "true", "false", "$v", "$w")
_METHODS: Final = ("abs", "size", "type", "floor", "double", "ceiling")
_MANGLED: Final = ("", "(", ")", " ", "a", "1", ".", "[", "\\", '"', "@", "$")


def document(chance: Random, deep: int = 3) -> object:
    """A JSON value."""
    kind = chance.random()
    if not deep or kind < 0.35:
        return chance.choice(_SCALARS)
    size = chance.randint(0, 3)
    if kind < 0.7:
        return {chance.choice("abc"): document(chance, deep - 1) for _ in range(size)}
    return [document(chance, deep - 1) for _ in range(size)]


class _Paths:
    """`filtered`, `subscript`: whether the part at hand stands in a filter, in a subscript."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._filtered = self._subscript = 0

    def path(self) -> str:
        mode = self._chance.choice(("", "", "strict ", "lax "))
        made = mode + (self._predicate(3) if self._chance.random() < 0.3 else self._value(3))
        if self._chance.random() < 0.1:
            at = self._chance.randrange(len(made))
            made = made[:at] + self._chance.choice(_MANGLED) + made[at + 1 :]
        return made

    def _value(self, deep: int) -> str:
        kind = self._chance.random()
        if deep <= 0 or kind < 0.7:
            return self._accessed(deep)
        if kind < 0.75:
            return self._chance.choice("+-") + self._value(deep - 1)
        if kind < 0.85:
            return f"({self._value(deep - 1)})"
        return f"{self._value(deep - 1)} {self._chance.choice('+-*/%')} {self._value(deep - 1)}"

    def _accessed(self, deep: int) -> str:
        kind = self._chance.random()
        if kind < 0.2:
            head = self._chance.choice((*_HEADS, self._chance.choice(_NUMBERS)))
        elif self._filtered and kind < 0.75:
            head = "@"
        elif self._subscript and kind < 0.5:
            head = "last"
        else:
            head = "$"
        if deep > 1 and self._chance.random() < 0.1:
            head = f"({self._value(deep - 1)})"
        many = self._chance.randint(0, 2) if head[0] in "$@(" else 0
        return head + "".join(self._accessor(deep - 1) for _ in range(many))

    def _accessor(self, deep: int) -> str:
        kind = self._chance.random()
        if kind < 0.4:
            return "." + self._chance.choice(("a", "b", "c", '"a"', "size", "type"))
        if kind < 0.6:
            return self._chance.choice((".*", "[*]", "[*]"))
        if kind < 0.7:
            self._subscript += 1
            many = self._chance.randint(1, 2)
            made = ",".join(self._place(deep) for _ in range(many))
            self._subscript -= 1
            return f"[{made}]"
        if kind < 0.78:
            return f".**{self._chance.choice(_LEVELS)}"
        if kind < 0.9:
            return (
                f".{self._chance.choice(['abs', 'size', 'type', 'floor', 'double', 'ceiling'])}()"
            )
        self._filtered += 1
        made = self._predicate(deep)
        self._filtered -= 1
        return f" ? ({made})"

    def _place(self, deep: int) -> str:
        one = self._chance.choice(_NUMBERS)
        last = self._chance.choice(("last", self._chance.choice(_NUMBERS)))
        return self._chance.choice((self._value(deep - 1), one, "last", f"{one} to {last}"))

    def _predicate(self, deep: int) -> str:
        kind = self._chance.random()
        if deep <= 0 or kind < 0.55:
            sign = self._chance.choice(("==", "!=", "<", ">", "<=", ">=", "<>"))
            return f"{self._value(deep - 1)} {sign} {self._value(deep - 1)}"
        if kind < 0.65:
            sign = self._chance.choice(("&&", "||"))
            return f"{self._predicate(deep - 1)} {sign} {self._predicate(deep - 1)}"
        if kind < 0.79:
            shape = self._chance.choice(("!({})", "({}) is unknown"))
            return shape.format(self._predicate(deep - 1))
        if kind < 0.87:
            return f"exists({self._value(deep - 1)})"
        if kind < 0.94:
            return f"{self._value(deep - 1)} starts with {self._chance.choice(_HEADS[:2])}"
        tail = self._chance.choice(('"^a"', '"B" flag "i"', '"." flag "s"', '"a.c"'))
        return f"{self._value(deep - 1)} like_regex {tail}"


def random_paths(seed: int) -> Iterator[tuple[str, str, str]]:
    """Path, document, vars; without end."""
    chance = Random(seed)
    paths = _Paths(chance)
    while True:
        found = chance.choice(['{"v": "a", "w": 1}'] * 5 + ["{}", '{"v": [1, 2], "w": null}'])
        yield paths.path(), json.dumps(document(chance)), found


_TEXTS: Final = {
    "": (
        *("2017-03-10", "2017-3-1", " 2017-03-11 ", "2016-02-29", "2017-02-29", "2017/03/10", ""),
        *("12:34:56", "12:34:56.7", "12:34:56.1234567", "24:00:00", "1:2:3", "12:34", "x"),
        *("12:34:56+03", "12:34:56 +3", "04:04:56-03:00", "12:34:56+16", "07:04:56+00"),
        *("2017-03-10 00:00:00", "2017-03-10T12:34:56.5", "2017-03-10  1:2:3"),
        *("2017-03-10 00:00:00+05:30", "2017-03-09T18:30:00+00", "2017-03-10T12:34:56Z"),
    ),
    "dd.mm.yyyy": ("10.03.2017", "1.1.1", "30.02.2017", "10.03", "10.03.2017 ", "10-03-2017"),
    "YYYYMMDD": ("20170310", "2017031", "201703"),
    "yy Mon DD": ("17 mar 10", "70 DEC 1", "17 march 10"),
    "YYYY DDD": ("2017 123", "2016 366", "2017 366"),
    "HH12:MI AM": ("12:34 pm", "12:34 AM", "13:00 AM", "1:00 P.M."),
    "HH24:MI:SS.FF3": ("12:34:56.1", "12:34:56.1235", "23:59:59.9996", "12:34:56."),
    "HH24:MI TZH:TZM": ("12:34 +05:30", "12:34 -3:00", "12:34 03"),
    'YYYY-MM-DD"T"HH24:MI:SSTZH': ("2017-03-10T12:34:56+03", "2017-03-10T12:34:56"),
    "FMDD/FMMM/YYYY": ("1/2/2017", "10/03/2017"),
    "SSSSS": ("86399", "86400", "12"),
    "YYYY-MM-DD TZH": ("2017-03-10 +03",),
    "TZH": ("+03",),
    "YYYY_MM": ("2017_03",),
    "DDth MONTH YYYY": ("10th march 2017", "1st May 2017", "1st Mayy 2017"),
}


def datetime_paths(seed: int) -> Iterator[tuple[str, str, str]]:
    """The same of dates and times that are read, and compared."""
    chance = Random(seed)

    def text(template: str) -> str:
        one = chance.choice(_TEXTS[template])
        if one and chance.random() < 0.1:
            at = chance.randrange(len(one))
            one = one[:at] + chance.choice("0123456789 :.x") + one[at + 1 :]
        return json.dumps(one)

    def call() -> tuple[str, str]:
        template = chance.choice((*[""] * 8, *_TEXTS))
        return text(template), f".datetime({json.dumps(template) if template else ''})"

    while True:
        (one, first), (other, second) = call(), call()
        sign = chance.choice(("==", "!=", "<", ">", "<=", ">="))
        mode = chance.choice(("", "", "strict "))
        yield chance.choice(
            [
                (f"{mode}${first}", one, "{}"),
                (f"{mode}${first}.type()", one, "{}"),
                (f"{mode}$[*]{first}", f"[{one}, {other}]", "{}"),
                (f"{mode}${first} {sign} $v{second}", one, f'{{"v": {other}}}'),
                (f"{mode}${first} {sign} $v{second}", one, f'{{"v": {other}}}'),
                (f"{mode}$[*] ? (@{first} {sign} {other}{second})", f"[{one}, {other}]", "{}"),
                (f"{mode}${first} {sign} {chance.choice(_HEADS)}", one, '{"v": 1, "w": null}'),
                (f"{mode}${first}.{chance.choice(_METHODS)}()", one, "{}"),
            ]
        )


def asked() -> list[tuple[str, str, str]]:
    """All that is recorded."""
    return [*islice(random_paths(0), MANY), *islice(datetime_paths(0), MANY_DATETIMES)]


def _asked(link: PGconn, sql: str, args: list[str]) -> Any:
    result = link.exec_params(f"SELECT {sql}".encode(), [one.encode() for one in args])
    if result.status == ExecStatus.FATAL_ERROR:
        found = [
            (result.error_field(field) or b"").decode()
            for field in (DiagnosticField.SQLSTATE, DiagnosticField.MESSAGE_PRIMARY)
        ]
        return {"error": found[0], "message": found[1]}
    values = [result.get_value(row, 0) for row in range(result.ntuples)]
    return [None if value is None else value.decode() for value in values]


def main() -> None:
    rows = []
    with psycopg.connect(sys.argv[1], autocommit=True) as connection:
        link = connection.pgconn
        connection.execute(f"SET timezone = '{ZONE}'")
        for path, text, variables in asked():
            row = [path, text, variables, _asked(link, "$1::jsonpath", [path])]
            if isinstance(row[3], list):
                row[3] = row[3][0]
                row += [_asked(link, sql, [text, path, variables]) for sql in CALLS.values()]
            rows.append(row)
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    TARGET.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
