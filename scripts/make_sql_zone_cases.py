"""Writes tests/sqlproxy/compare/zones.sql: what depends on the session's time zone, on all ways.

    python scripts/make_sql_zone_cases.py

Of the registry of functions and casts: each one that takes or gives a timestamptz or takes any
type, as a constant, of a column, and of a column in a join (the way of DuckDB), in two zones one
after the other, since plans are remembered. A function that is new in the registry is in it by
itself; one that takes a text needs a line in _TEXTS. Then what random times around the changes of
clocks become by arithmetic, truncation and casts, and random intervals times and by random numbers.
Behind it, `python scripts/record_sql_compare.py record … zones.sql`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from zoneinfo import ZoneInfo

from sqlproxy.front.functions.all_functions import FUNCTIONS as EVALUATED
from sqlproxy.front.types import comparing
from sqlproxy.front.types.registry import CASTS, FUNCTIONS, OPERATORS, Proc, format_type
from sqlproxy.pg import oids

FILE = Path(__file__).parent.parent / "tests" / "sqlproxy" / "compare" / "zones.sql"
_TOGETHER = 6  # expressions of one case
_ANY = frozenset((2276, 2283, 2776, 5077, 5079))
_ANY_ARRAY = frozenset((2277, 5078))
_CONSTANT = "timestamptz '2024-11-03 06:30+00'"
_OF_TYPES = {
    16: "true",
    20: "1",
    21: "1",
    23: "1",
    701: "1710054000.5",
    1005: "null",
    1082: "{d}",
    1114: "{ts}",
    1184: "{x}",
    1186: "interval '1 mon 1 day 02:30'",
    1185: "array[{x}, null]",
}
_TEXTS = {  # function → its texts
    "||": ["'-'"],
    "anytextcat": ["'-'"],
    "textanycat": ["'-'"],
    "concat_ws": ["','"],
    "array_to_string": ["','", "'none'"],
    "date_part": ["'hour'"],
    "date_trunc": ["'day'", "'Asia/Tokyo'"],
    "extract": ["'epoch'"],
    "make_timestamptz": ["'Australia/Lord_Howe'"],
    "timezone": ["'America/Sao_Paulo'"],
    "to_char": ["'YYYY-MM-DD HH24:MI:SS.US TZ OF'"],
    "to_timestamp": ["'2024-11-03 01:30'", "'YYYY-MM-DD HH24:MI'"],
}
_GIVEN = {  # function → all its arguments: those of their types are none for it
    ("make_timestamptz", 6): "2024, 11, 3, 1, 30, 5.5",
    ("make_timestamptz", 7): "2024, 11, 3, 1, 30, 5.5, 'Australia/Lord_Howe'",
    ("date_bin", 3): "interval '15 minutes', {x}, timestamptz '2024-01-01 00:07+00'",
    ("width_bucket", 2): "{x}, array[timestamptz '2024-01-01', '2024-06-01', '2025-01-01']",
    ("format", 2): "'%s|%L|%10s', {x}, {x}, {x}",
    ("json_build_object", 1): "coalesce({x}, 'epoch'), {x}",
    ("jsonb_build_object", 1): "coalesce({x}, 'epoch'), {x}",
}
_NOT = frozenset(  # of the clock, of types that it is not, or of what has no zone in it
    (
        "now",
        "statement_timestamp",
        "clock_timestamp",
        "pg_conf_load_time",
        "pg_postmaster_start_time",
        "transaction_timestamp",
        "pg_sleep",
        "pg_sleep_until",
        "array_dims",
        "array_length",
        "array_lower",
        "array_ndims",
        "array_upper",
        "cardinality",
        "array_fill",
        "row_to_json",
        "pg_typeof",
    )
)
_ZONES = (
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "+05:30",
    "UTC-3",
    "FOO3BAR",
    "<-03:30>+03:30",
    "America/Sao_Paulo",
    "Europe/Dublin",
    "Pacific/Apia",
    "Africa/Casablanca",
)
_UNITS = (
    "microseconds",
    "milliseconds",
    "second",
    "minute",
    "hour",
    "day",
    "week",
    "month",
    "quarter",
    "year",
    "decade",
    "century",
    "millennium",
)
_FIELDS = (
    "hour",
    "minute",
    "second",
    "day",
    "dow",
    "isodow",
    "doy",
    "week",
    "isoyear",
    "epoch",
    "timezone",
    "timezone_hour",
    "timezone_minute",
    "julian",
    "quarter",
)
_MORE = (
    "{x} at time zone 'PDT'",
    "{x} at time zone '+10:00'",
    "{x} at time zone 'UTC-3'",
    "{x} at time zone interval '-02:30'",
    "{ts} at time zone 'EST5EDT'",
    "{ts} at time zone '-05'",
    "({x} at time zone 'Asia/Tokyo')::text || {x}",
    "array[{x}]::text",
    "array[{x}]::text[]",
    "array[{x}]::date[]",
    "array[{ts}]::timestamptz[]",
    "({x})::varchar(10)",
    "({x})::char(5)",
    "({x})::name",
    "({ts})::text::timestamptz",
    "({x})::text::timestamptz = {x}",
    "({d})::text::timestamptz",
    "'2024-11-03 01:30'::text::timestamptz",
    "length(({x})::text)",
    "case when {x} > {ts} then ({x})::text else concat({ts}) end",
    "coalesce(({x})::text, 'none')",
    "nullif(concat({x}), '2024-11-03 01:30:00-05')",
    "greatest({x}, {ts}, {d})",
    "{x} in ('2024-11-03 01:30', '2024-11-03 06:30+00')",
    "{x} between {d} and {ts}",
    "{x} = any (array['2024-11-03 01:30-04', '2024-11-03 01:30']::timestamptz[])",
    "({x}, {x}) overlaps ({ts}, interval '1 day')",
    "row({x}, 1) < row({ts}, 2)",
    "concat({x}) like '2024-11-03 0%'",
    "array[{x}, {ts}]",
    "to_json(array[array[{x}]])",
    "jsonb_build_object('a', array[{x}]) ->> 'a'",
    "to_jsonb({x}) #>> '{{}}'",
    "generate_series({x}, {x} + '2 days', '1 day')::text",
    "unnest(array[{x}, {ts}]) || ''",
    "date_trunc('day', {x}, '+05:30')",
    "date_trunc('hour', {x}, 'Australia/Lord_Howe')",
    *(f"extract({field} from {{x}})" for field in _FIELDS),
    *(f"date_trunc('{unit}', {{x}})" for unit in _UNITS),
)
_OF_ROWS = (
    "json_agg(i order by id)",
    "jsonb_agg(i order by id)",
    "json_agg({x} order by id)",
    "jsonb_agg(array[{x}] order by id)",
    "json_object_agg(id, {x} order by id)",
    "jsonb_object_agg(coalesce({x}, {ts}, 'epoch'), {x} order by id)",
    "max({x})::text",
    "min({x}) || ''",
    "array_agg({x} order by id)::text",
    "count(distinct {x}::date)",
    "string_agg({x}::text, ',' order by id)",
    "string_agg(concat({x}), ',' order by id)",
    "array_to_json(array_agg({x} order by id))",
    "array_to_string(array_agg({x} order by id), ',')",
)
_WINDOWS = (
    "lag({x}) over (order by id)",
    "first_value({x} || '') over (order by id)",
    "max({x}::text) over (order by id)",
    "count(*) over (partition by {x}::date)",
)


def _known(proc: Proc) -> bool:
    return proc.source in EVALUATED or (proc.kind == "o" and proc.name in comparing.OPERATORS)


def _arguments(proc: Proc) -> list[str] | None:
    if proc.name == "timezone" and proc.args[0] == 1186:
        return ["interval '-02:30'", _OF_TYPES[proc.args[1]]]
    if given := _GIVEN.get((proc.name, len(proc.args))):
        return [given]
    texts = iter(_TEXTS.get(proc.name, ()))
    found = []
    for oid in proc.args:
        if oid in _ANY:
            found.append("{x}")
        elif oid in _ANY_ARRAY:
            found.append("array[{x}, null]")
        elif oid == 25:
            text = next(texts, "")
            assert text, f"a text for {proc.name}{proc.args} in _TEXTS"
            found.append(text)
        elif oid in _OF_TYPES:
            found.append(_OF_TYPES[oid])
        else:
            return None
    return found


def _of_registry() -> Iterator[str]:
    for name, procs in sorted({**FUNCTIONS, **OPERATORS}.items()):
        for proc in procs:
            of_it = {*proc.args, proc.result}
            if (
                name in _NOT
                or name.startswith("pg_")  # what the server has seen
                or (name == "age" and len(proc.args) == 1)
                or proc.kind not in "fo"
                or not _known(proc)
            ):
                continue
            if oids.TIMESTAMPTZ not in of_it and not of_it & (_ANY | _ANY_ARRAY):
                continue
            arguments = _arguments(proc)
            if arguments is None:
                continue
            if proc.kind == "o":
                yield f"({arguments[0]}) {name} ({arguments[1]})"
            else:
                yield f'"{name}"({", ".join(arguments)})'
    for source, target in sorted(CASTS):
        kept = source in _OF_TYPES and target in _OF_TYPES | {1083: ""}
        if kept and source != target and oids.TIMESTAMPTZ in (source, target):
            yield f"({_OF_TYPES[source]})::{format_type(target)}"


def _filled(expr: str, table: str = "") -> str:
    at = f"{table}." if table else ""
    return expr.format(x=f"{at}x", ts=f"{at}ts", d=f"{at}d")


def _matrix() -> Iterator[str]:
    exprs = list(dict.fromkeys((*_of_registry(), *_MORE)))
    of_sets = [one for one in exprs if one.startswith(("generate_series", "unnest"))]
    plain = [one for one in exprs if one not in of_sets]
    groups = [plain[at : at + _TOGETHER] for at in range(0, len(plain), _TOGETHER)]
    for number, group in enumerate((*groups, *([one] for one in of_sets))):
        listed = ", ".join(group)
        constant = listed.format(
            x=_CONSTANT, ts="timestamp '2024-03-10 02:30'", d="date '2024-03-10'"
        )
        yield _in_two_zones(
            number,
            f"select id, {_filled(listed)} from instants order by id",
            f"select a.id, {_filled(listed, 'a')} from instants a join instants b on a.id = b.id "
            "order by a.id",
            f"select {constant}",
        )
    listed = _filled(", ".join(_WINDOWS))
    yield _in_two_zones(0, f"select id, {listed} from instants order by id")
    for number, expr in enumerate(_OF_ROWS):
        yield _in_two_zones(number, f"select {_filled(expr)} from instants i")


def _in_two_zones(number: int, *ways: str) -> str:
    zone = _ZONES[1 + number % (len(_ZONES) - 1)]
    return " ;; ".join((f"set timezone = '{_ZONES[0]}'", *ways, f"set timezone = '{zone}'", *ways))


def _sessions() -> Iterator[str]:
    """What a plan, a cursor, a change or the catalog makes of it."""
    way = "select x || '' as a, to_json(x) as b, row_to_json(i)::text as c from instants i"
    for zone in _ZONES[:4]:
        yield (
            f"set timezone = '{zone}' ;; prepare p as {way} where id = $1 ;; execute p(1) ;; "
            f"set timezone = 'Asia/Tokyo' ;; execute p(1) ;; "
            f"declare c cursor for {way} order by id ;; set timezone = '{zone}' ;; "
            "fetch all c ;; select current_setting('timezone'), id, x::text from instants where "
            "id = 1 ;; select current_setting('TimeZone'), "
            "timestamptz '2024-07-01 00:00+00'::text ;; select concat(timestamptz '2024-07-01 "
            "00:00+00'), timestamptz '2024-07-01 00:00+00'::date, relname from pg_class where "
            "relname = 'pg_class'"
        )
        yield (
            f"set timezone = '{zone}' ;; insert into instants values (9, '2024-11-03 01:30', "
            "'2024-11-03 01:30', '2024-11-03') returning x || '', to_jsonb(x), x = ts, x > d ;; "
            "update instants set ts = x::timestamp, d = x where id < 3 returning ts, d, "
            "concat(x) ;; delete from instants where x = ts returning x::text, ts"
        )


def _changes_of_clocks(zone: str) -> list[datetime]:
    there, hour = ZoneInfo(zone), timedelta(hours=1)
    found, at = [], datetime(1995, 1, 1, tzinfo=UTC)
    while at.year < 2026:
        before, at = at, at + 24 * hour
        while (
            before < at and before.astimezone(there).utcoffset() != at.astimezone(there).utcoffset()
        ):
            before += hour
            if before.astimezone(there).utcoffset() == at.astimezone(there).utcoffset():
                found.append(before)
    return found


def _around_changes(random: Random) -> Iterator[str]:
    zones = (
        "America/New_York",
        "Europe/Berlin",
        "Australia/Lord_Howe",
        "America/Sao_Paulo",
        "Africa/Casablanca",
        "America/Caracas",
        "Asia/Tehran",
        "Pacific/Apia",
    )
    for zone in zones:
        changes = _changes_of_clocks(zone)
        for _ in range(8):

            def moment(changes: list[datetime] = changes) -> datetime:
                return random.choice(changes) + timedelta(
                    minutes=random.choice((-1500, -90, -60, -30, -1, 0, 1, 15, 30, 60, 90, 1440))
                )

            def aware() -> str:
                return f"timestamptz '{moment().isoformat(sep=' ')}'"

            def local(there: ZoneInfo = ZoneInfo(zone)) -> str:  # noqa: B008 - of this turn
                return f"timestamp '{moment().astimezone(there).replace(tzinfo=None)}'"

            a, b, c = aware(), aware(), local()
            step = random.choice(
                ("1 day", "-1 mon 2 days", "1 year -25:00", "36:30", "1 week", "-1 day 24:00")
            )
            other = random.choice((*zones, "+02:00", "EST5EDT", "utc", "CEST"))
            unit, field = random.choice(_UNITS), random.choice(_FIELDS)
            listed = (
                f"{a} + interval '{step}', {a} - interval '{step}', {a} - {b}, age({a}, {b}), "
                f"{c}::timestamptz, {a}::timestamp, {a}::date, {a}::date::timestamptz, {a} = {c}, "
                f"{a} < {c}, {c} + interval '{step}' - {a}, date_trunc('{unit}', {a}), "
                f"date_trunc('{unit}', {a}, '{other}'), extract({field} from {a}), "
                f"{a} at time zone '{other}', {c} at time zone '{other}', "
                f"to_char({a}, 'YYYY-MM-DD HH24:MI OF'), age({c}, {a}::timestamp), "
                f"array(select generate_series({a}, {a} + interval '3 days', interval '1 day'))"
            )
            yield f"set timezone = '{zone}' ;; select {listed}"


def _intervals(random: Random) -> Iterator[str]:
    for _ in range(40):
        one = (
            f"interval '{random.randint(-40, 40)} mons {random.randint(-70, 70)} days "
            f"{random.choice((0, random.randint(-200_000, 200_000)))}."
            f"{random.randint(0, 999_999):06} seconds'"
        )
        factor = random.choice((0.1, 1.5, -2.75, 1 / 3, 7, 12, -0.01, 36.25, random.uniform(-9, 9)))
        yield (
            f"select {one} * {factor!r}, {one} / {factor!r}, {factor!r} * {one}, "
            f"justify_hours({one}), justify_days({one}), justify_interval({one}), - {one}, "
            f"extract(epoch from {one}), date_trunc('{random.choice(_UNITS[:6])}', {one}), "
            f"{one} > interval '1 mon', extract({random.choice(_FIELDS[:4])} from {one})"
        )


def lines() -> list[str]:
    random = Random(2024)
    return [
        "-- Made by scripts/make_sql_zone_cases.py.",
        *_matrix(),
        *_sessions(),
        *_around_changes(random),
        *_intervals(random),
    ]


if __name__ == "__main__":
    FILE.write_text("\n".join(lines()) + "\n", encoding="utf-8")
    print(f"{len(lines()) - 1} cases in {FILE.name}")
