"""INSERT of many rows by patterns: what the parser and the binder make of the same text, or left to
them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kv.base.ids import TableId
from sqlproxy.front import front
from sqlproxy.front.bound.env import Env
from sqlproxy.front.syntax import bulk_reading
from sqlproxy.front.syntax.syntax import parse, split, whole
from sqlproxy.rows.schema import Column, Table
from sqlproxy.tables.writing import InsertPlan
from sqlproxy.values.errors import SqlError
from tests.kit.each import each
from tests.sqlproxy.front.names import FakeNames

TYPES = (
    "int4",
    "int2",
    "int8",
    "text",
    "varchar(5)",
    "char(3)",
    "float8",
    "float4",
    "numeric",
    "numeric(8,2)",
    "bool",
    "date",
    "timestamp",
    "timestamptz",
    "time",
    "interval",
    "uuid",
    "bytea",
    "json",
    "jsonb",
    "int4[]",
    "text[]",
    "name",
)
MANY = Table(
    id=TableId(7),
    namespace="postgres",
    name="many",
    state="public",
    primary_key=("c0",),
    columns=tuple(Column(n + 1, f"c{n}", kind) for n, kind in enumerate(TYPES)),
)
NAMES = FakeNames(MANY)
ENV = Env()
ROWS = 16

PLAIN = [
    "1",
    "0",
    "-7",
    "007",
    "2147483647",
    "2147483648",
    "-2147483648",
    "9223372036854775807",
    "99999999999999999999",
    "1.5",
    "-0.0",
    "12.3456",
    "true",
    "FALSE",
    "null",
    "NULL",
    "''",
    "'a'",
    "'it''s'",
    "'1'",
    "' 12 '",
    "'1.5'",
    "'t'",
    "'2026-01-31'",
    "'2026-01-31 12:00'",
    "'12:34:56'",
    "'1 day'",
    "'{1,2}'",
    "'{\"a\": 1}'",
    "'\\x00ff'",
    "'now'",
    "'NaN'",
    "'6f1c2b1e-0000-4000-8000-000000000000'",
    "'a,b)('",
    "'$1'",
    "'ü€'",
]
NOT_PLAIN = [
    "1+1",
    "default",
    "E'a'",
    "'a'::text",
    "-(1)",
    "1e5",
    "1.",
    ".5",
    "- 5",
    "--1",
    "/**/1",
    "current_date",
    "U&'a'",
    "$1",
    "(1)",
    "+1",
    "b'1'",
    "1a",
    "'a' 'b'",
    "0x1F",
    "row(1)",
    "1٢",
    "٢",
    "-٢",
    "1.٢",
    "$\u0661",
    "fal\u017fe",
]


def outcome(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except SqlError as error:
        return error.sqlstate, error.message, error.position


def values(bound: Any, params: Sequence[Any] = ()) -> list[list[tuple[type, Any]]]:
    """With their types: 1, 1.0 and true are equal to Python; and NaN is not NaN."""
    env = Env(params=tuple(params))
    plan = InsertPlan(bound)
    given = plan._given(None, env)
    return [[(type(v), repr(v)) for v in given(at)] for at in range(plan.count)]


def both(text: str, oids: Sequence[int] = (), params: Sequence[Any] = ()) -> tuple[Any, Any, bool]:
    """What the patterns make of it, what the parser makes of it, and whether the first did."""
    bound = outcome(lambda: front.bind(parse(text), NAMES, oids))
    wanted = outcome(lambda: front.bind(whole(text), NAMES, oids))
    if isinstance(wanted, tuple) or isinstance(bound, tuple):
        return bound, wanted, False
    assert bound.parameters == wanted.parameters
    assert (bound.columns, bound.conflict, bound.returning) == (
        wanted.columns,
        wanted.conflict,
        wanted.returning,
    )
    found = outcome(lambda: values(bound, params))
    return found, outcome(lambda: values(wanted, params)), bound.given is not None


def insert(columns: Sequence[str], rows: Sequence[Sequence[str]], tail: str = "") -> str:
    lists = ", ".join(f"({', '.join(row)})" for row in rows)
    return f"INSERT INTO many ({', '.join(columns)}) VALUES {lists}{tail}"


@pytest.mark.few(8)
@pytest.mark.parametrize("column", range(len(TYPES)))
def test_p1_literals_are_what_the_parser_says(column: int) -> None:
    """A literal would become another value, type or error when it comes in a long INSERT."""
    taken = 0
    for literal in PLAIN:
        text = insert(
            ["c0", f"c{column}"] if column else ["c0"],
            [[str(n), literal] if column else [literal] for n in range(ROWS)],
        )
        found, wanted, quick = both(text + " " * 200)
        assert found == wanted, literal
        taken += quick
    assert taken, "some go the quick way"


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(10))
def test_p1_mixed_literals(seed: int) -> None:
    """NULLs, or numbers of several sizes in one column, would take each other's type."""
    rng = random.Random(seed)
    kinds = rng.sample(range(1, len(TYPES)), 4)
    good = [
        [one for one in PLAIN if not isinstance(both(insert([f"c{c}"], [[one]] * ROWS))[1], tuple)]
        for c in kinds
    ]
    rows = [[rng.choice(some) for some in good] for _ in range(ROWS)]
    found, wanted, _ = both(insert([f"c{c}" for c in kinds], rows))
    assert found == wanted


# What JSON reads as SQL does, what it refuses, and what it would read in another way.
NEARLY = [
    *PLAIN,
    *(one for one in NOT_PLAIN if one != "$1"),
    "'[1]'",
    "'(a)'",
    "':)'",
    "':('",
    "'(['",
    "'\\u0041'",
    "'a\\'",
    "'\"'",
    "'\t\n'",
    "'\x7f'",
    "\u00a01",
    "-0",
    "1E2",
    "-1e-1",
    "18446744073709551615",
    "18446744073709551616",
    "True",
    "NULL",
    "'a' ",
    " 1 ",
    "[1]",
    "{}",
    '"c0"',
    "'",
    "''''",
    "'a''''b'",
    "()",
    "1,",
    "NaN",
    "'\ud800'",
    "array[1]",
    "((1))",
]


@pytest.mark.parametrize("seed", range(20))
def test_p1_literals_that_look_like_json(seed: int) -> None:
    """A text that is read as JSON would mean something else than as SQL."""
    rng = random.Random(seed)
    quick = 0
    for _ in range(25):
        kinds = rng.sample(range(len(TYPES)), rng.randint(1, 4))
        often = [rng.sample(PLAIN[:20] + NEARLY, 3) for _ in kinds]
        rows = [[rng.choice(some) for some in often] for _ in range(ROWS + rng.randint(0, 3))]
        if rng.random() < 0.3:
            rng.choice(rows)[0] = rng.choice(NEARLY)
        tail = rng.choice(["", "", ";", " ;\n", " returning c0", ";;", ",", ")", "; select 1"])
        found, wanted, _ = both(insert([f"c{c}" for c in kinds], rows, tail))
        assert found == wanted, (kinds, rows, tail)
    rows = [
        [str(rng.randint(-(1 << 33), 1 << 33)), rng.choice(["'(a, b)'", "'v'", "null"])]
        for _ in range(ROWS)
    ]
    for kind in ("c2", "c8"):
        found, wanted, quick = both(insert([kind, "c3"], rows))
        assert found == wanted
        assert quick


@pytest.mark.parametrize("value", ["':)'", "':('", "'(a'", "'b)'", "')('", "'(a)'"])
def test_p1_parentheses_in_strings_stay(value: str) -> None:
    """A parenthesis that nothing closes, or opens, would be stored as a bracket."""
    rows = [[str(n), value if n % 3 else "'a'"] for n in range(3 * ROWS)]
    found, wanted, quick = both(insert(["c0", "c3"], rows))
    assert found == wanted
    assert quick


@pytest.mark.few(6)
@pytest.mark.parametrize("seed", range(20))
def test_p1_texts_with_a_slip(seed: int) -> None:
    """A character too few or too many would be overlooked, or told in other words."""
    rng = random.Random(seed)
    rows = [
        [str(n), f"'v ({n}), x'", rng.choice(["true", "null", "-1", "''"])] for n in range(ROWS)
    ]
    good = insert(["c0", "c3", "c10" if seed % 2 else "c8"], rows)
    start = good.index("VALUES")
    for _ in range(50):
        text = list(good)
        for _ in range(rng.choice([1, 1, 2])):
            at = rng.randrange(start, len(text))
            text[at : at + rng.choice([0, 1])] = rng.choice([[], *"'\"()[],;\\ 07.-etn:{}\n/*"])
        found, wanted, _ = both("".join(text))
        assert found == wanted, "".join(text)


@each("odd", NOT_PLAIN)
@pytest.mark.parametrize("row", [0, 7, ROWS - 1])
def test_p1_what_is_not_plain_goes_to_the_parser(odd: str, row: int) -> None:
    """An expression would be read as something else, or an error point at the wrong place."""
    rows = [[str(n), f"'value {n}'"] for n in range(ROWS)]
    rows[row][0] = odd
    found, wanted, quick = both(insert(["c0", "c3"], rows), params=(1,))
    assert found == wanted
    assert not quick


@pytest.mark.parametrize(
    "text",
    [
        insert(["c0", "c3"], [["1", "'a'"]] * 19 + [["1"]]),
        insert(["c0"], [["1", "'a'"]] * 20),
        insert(["c0", "c0"], [["1", "2"]] * 20),
        insert(["c0", "none"], [["1", "2"]] * 20),
        insert(["c0", "c3"], [["1", "'a'"]] * 20, " returning none"),
        insert(["c0", "c3"], [["1", "'a'"]] * 20, " on conflict (c3) do nothing"),
        insert(["c0", "c3"], [["1", "'a'"]] * 20, ","),
        insert(["c0", "c3"], [["1", "'a'"]] * 20, "; select 1"),
        insert(["c0", "c3"], [["1", "'a'"]] * 19 + [["9999999999", "'a'"]]),
        insert(["c0", "c3"], [["1", "'a'"]] * 19 + [["'x'", "'a'"]]),
        insert(["c4", "c0"], [["'abcde'", "1"]] * 19 + [["'too long'", "1"]]),
        insert(["c0", "c3"], [["1", "'a'"]] * 20).replace("many", "nothing"),
        "insert into t (a, g) values " + ", ".join("(1, 2)" for _ in range(40)),
        "  \n" + insert(["c0", "c3"], [["1", "'a'"]] * 19 + [["'ü'", "'a'"]]),
    ],
)
def test_p1_errors_are_the_parsers(text: str) -> None:
    """A wrong row of many would be told with other words, or a position in the first row."""
    found, wanted, _ = both(text)
    assert found == wanted
    assert isinstance(wanted, tuple)


@pytest.mark.parametrize(
    "tail",
    [
        "",
        ";",
        " ; ",
        " returning c0, c3 as x",
        "\nON CONFLICT DO NOTHING",
        " on conflict (c0) do update set c3 = excluded.c3 || '!' returning *",
    ],
)
def test_p1_what_follows_the_rows_stays(tail: str) -> None:
    """RETURNING or ON CONFLICT behind many rows would be forgotten."""
    text = insert(["c0", "c3"], [[str(n), f"'v{n}'"] for n in range(ROWS)], tail)
    found, wanted, quick = both(text)
    assert found == wanted
    assert quick
    (part,) = split(text)
    assert front.bind(parse(part), NAMES).given.count == ROWS
    assert front.bind(parse(part), NAMES).given.count == ROWS, "also when it is asked for again"


def numbered(columns: int, rows: int = ROWS) -> list[list[str]]:
    return [[f"${r * columns + c + 1}" for c in range(columns)] for r in range(rows)]


@pytest.mark.parametrize(
    "oids",
    [
        (),
        (23, 25) * ROWS,
        (21, 1043) * ROWS,
        (0, 705) * ROWS,
        (20,),
        (21, 25) * 7 + (20, 25) * 9,
        (25, 25) * ROWS,
        (16, 25) * ROWS,
    ],
)
def test_p1_parameters_are_what_the_parser_says(oids: tuple[int, ...]) -> None:
    """A parameter would have another type, be converted otherwise, or come to another column."""
    text = insert(["c0", "c4"], numbered(2))
    texts = [v for n in range(ROWS) for v in (n % 5 and n, None if n == 3 else f"v{n}")]
    found, wanted, _ = both(text, oids, texts)
    assert found == wanted


@pytest.mark.parametrize(
    "numbers",
    [
        [["$1", "$2"], ["$1", "$3"]],
        [["$1", "$2"], ["$4", "$3"]],
        [["$1", "$2"], ["$2", "$3"]],
        [["$2", "$1"], ["$4", "$3"]],
        [["$1", "7"], ["$2", "7"]],
        [["$1", "null"], ["$2", "$3"]],
        [["$3", "'a'"], ["$4", "'a'"]],
        [["$0", "$1"], ["$2", "$3"]],
    ],
)
def test_p1_parameters_in_any_order(numbers: list[list[str]]) -> None:
    """Numbers that do not rise evenly would be taken for others."""
    (a, b), (c, d) = numbers
    steps = [int(y[1:]) - int(x[1:]) if x[0] == y[0] == "$" else 0 for x, y in ((a, c), (b, d))]
    rows = [
        [f"${int(x[1:]) + n * s}" if x[0] == "$" else x for x, s in zip((a, b), steps, strict=True)]
        for n in range(ROWS)
    ]
    rows[1] = [c, d]
    params = [n % 7 for n in range(3 * ROWS + 4)]
    found, wanted, _ = both(insert(["c0", "c1"], rows) + " " * 200, (), params)
    assert found == wanted


def test_p1_a_parameter_out_of_range_is_told_by_row() -> None:
    """The error would be that of the first column instead of the first row."""
    bound = front.bind(parse(insert(["c1", "c0"], numbered(2))), NAMES, (20, 20) * ROWS)
    assert bound.given is not None
    params = [1] * (2 * ROWS)
    params[2 * 9] = 1 << 20  # smallint, row 9
    params[2 * 4 + 1] = 1 << 40  # integer, row 4
    with pytest.raises(SqlError, match="integer out of range"):
        values(bound, params)


@pytest.mark.parametrize(
    "text",
    [
        "insert into t values (" + "'" * 40_001,
        "insert into t values " + "(1, 'a', " * 20_000,
        "insert into t values (1)" + ", (1)" * 20_000 + ", x",
        "insert into t (" + "a, " * 20_000 + "b) values (1)",
        "insert into t values" + " " * 60_000 + "x",
        "insert into t values (1" + "1" * 60_000 + ")" + ", (1)" * 20,
    ],
)
def test_p1_no_text_makes_the_patterns_slow(text: str) -> None:
    """A text that nearly fits would take a quadratic time, and with it the node."""
    began = time.process_time()
    found = bulk_reading.read(text)
    assert time.process_time() - began < 0.5
    if found is not None:
        assert isinstance(outcome(lambda: front.bind(parse(text), NAMES)), tuple)
