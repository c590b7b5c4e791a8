# ruff: noqa: E501 - statements are easier to read on one line
"""Statements that are costly on purpose: large values in every function's mouth, one function inside
another, every clause that multiplies, texts that are hard to read.

Composed from tables, so what is added to one meets all of the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final

TABLES: Final = (
    "CREATE TABLE words (id int PRIMARY KEY, v text)",
    "INSERT INTO words SELECT g, repeat('a', 50) || g FROM generate_series(1, 2000) g",
    "CREATE TABLE large (id int PRIMARY KEY, v text, d jsonb)",
    "INSERT INTO large SELECT g, repeat('a', 1000000),"
    " ('[' || repeat('1,', 100000) || '1]')::jsonb FROM generate_series(1, 4) g",
    "CREATE TABLE sums (" + ", ".join(f"c{n} int" for n in range(12)) + ", id serial PRIMARY KEY)",
    "INSERT INTO sums (c0, c1) SELECT g, g FROM generate_series(1, 200) g",
)


@dataclass(frozen=True, slots=True)
class Hostile:
    """`values`: its parameters, as text. `lines`: what a COPY … FROM STDIN is sent."""

    name: str
    text: str
    values: tuple[str, ...] | None = None
    lines: bytes = b""


_MIB: Final = 1 << 20
_LONG: Final = {
    "text": "repeat('a', 8000000)",
    "quotes": "repeat('''', 4000000)",
    "digits": "repeat('9', 8000000)",
    "accents": "repeat('é', 4000000)",
    "words": "repeat('ab cd-', 1000000)",
}
# of one text, which gives a text
_OF_TEXT: Final = (
    *("upper({0})", "initcap({0})", "reverse({0})", "md5({0})", "quote_literal({0})"),
    *("quote_ident({0})", "{0} || {0}", "replace({0}, 'a', 'bb')", "translate({0}, 'a9', 'bc')"),
    *("regexp_replace({0}, '[a9]', 'xx', 'g')", "to_json({0})::text", "encode({0}::bytea, 'hex')"),
    *("format('%s%s', {0}, {0})", "concat({0}, 1, {0})", "lpad({0}, 9000000, 'xy')"),
    *("btrim({0}, 'a9')", "substr({0}, 5)", "array_to_string(string_to_array({0}, 'a'), ',')"),
    *("array_to_string(regexp_split_to_array({0}, 'a'), ',')", "split_part({0}, 'a', 3)"),
    *(
        "overlay({0} placing 'x' from 5)",
        "normalize({0})",
        "left({0}, -1)",
        "{0}::varchar(7000000)",
    ),
    *("unistr({0})", "to_jsonb({0})::text", "jsonb_pretty(jsonb_build_array({0}, {0}))"),
    *("string_to_array({0}, NULL)::text", "array_fill({0}, array[100])::text", '{0} COLLATE "C"'),
    *(
        "to_char(now(), left({0}, 4000))",
        "decode({0}, 'escape')::text",
        "encode(sha256({0}::bytea), 'hex')",
    ),
)
# of one text, which gives whether
_ASKS: Final = (
    *(
        "{0} LIKE '%a%a%a%a%b'",
        "{0} ILIKE '%A_A%A%B'",
        "{0} SIMILAR TO '(a|aa)*b'",
        "{0} ~ '(a|aa)+$'",
    ),
    *("{0} ~* '(.*)(.*)(.*)x'", "{0} ~ '(a?){50}a{50}b'", "{0} LIKE repeat('%a_', 3000)"),
    *("{0} = {0} || 'x'", "{0} < 'b' || {0}", "{0} IN ('a', 'b', {0})", "starts_with({0}, {0})"),
    *(
        "strpos({0}, repeat('a', 100000) || 'b') > 0",
        "{0} BETWEEN 'a' AND {0}",
        "{0} IS NORMALIZED",
    ),
    *("{0}::jsonb IS NULL", "{0}::numeric > 1", "{0}::int[] IS NULL", "{0}::timestamptz IS NULL"),
    *("{0}::interval IS NULL", "{0}::date IS NULL", "{0}::uuid IS NULL", "{0}::bytea IS NULL"),
    *(
        "{0}::float8 > 1",
        "{0}::bigint > 1",
        "to_date({0}, 'YYYYMMDD') IS NULL",
        "({0})::name = 'a'",
    ),
    *("to_timestamp({0}, repeat('YYYY', 1000)) IS NULL", "to_number({0}, repeat('9', 4000)) > 1"),
    *(
        "parse_ident({0}) IS NULL",
        "{0}::regclass IS NULL",
        "{0}::time IS NULL",
        "{0}::json IS NULL",
    ),
)
_NUMBERS: Final = (
    *(
        "repeat('9', 100000)::numeric / 7",
        "1 / repeat('7', 100000)::numeric",
        "sqrt(repeat('9', 100000)::numeric)",
    ),
    *(
        "repeat('9', 100000)::numeric * repeat('7', 100000)::numeric",
        "repeat('9', 60000)::numeric % 977",
    ),
    *(
        "power(repeat('9', 1000)::numeric, 100)",
        "ln(repeat('9', 100000)::numeric)",
        "factorial(10000)",
    ),
    *(
        "exp(5000::numeric)",
        "log(3, repeat('9', 100000)::numeric)",
        "gcd(repeat('9', 50000)::numeric, repeat('6', 49999)::numeric)",
    ),
    *(
        "lcm(repeat('9', 50000)::numeric, repeat('6', 49999)::numeric)",
        "round(repeat('9', 100000)::numeric, -5)",
    ),
    *(
        "div(repeat('9', 120000)::numeric, repeat('7', 60000)::numeric)",
        "repeat('9', 100000)::numeric::text",
    ),
    *(
        "to_char(repeat('9', 100000)::numeric, 'FM999999999999')",
        "('0.' || repeat('7', 16000))::numeric ^ 3.3",
    ),
    *(
        "trim_scale(('1.' || repeat('0', 16000))::numeric)",
        "width_bucket(repeat('9', 100000)::numeric, 0, 9, 7)",
    ),
    *(
        "1e100000::numeric::float8",
        "repeat('9', 100000)::numeric::bigint",
        "('1e' || repeat('9', 1000))::numeric",
    ),
    *("hashtext(repeat('9', 8000000))", "repeat('1', 8000000)::bit varying"),
)
_JSONS: Final = {
    "array": "('[' || repeat('1,', 1000000) || '1]')",
    "objects": "('[' || repeat('{\"a\": [1, {\"b\": null}]},', 200000) || '1]')",
    "deep": "(repeat('[', 900) || repeat(']', 900))",
    "keys": "('{' || (SELECT string_agg('\"k' || g || '\":' || g, ',') FROM generate_series(1, 100000) g) || '}')",
    "string": "('\"' || repeat('a', 8000000) || '\"')",
}
_OF_JSON: Final = (
    *("{0}::jsonb::text", "{0}::json -> 5", "{0}::jsonb #> '{1,a,b}'", "{0}::jsonb @> {0}::jsonb"),
    *(
        "jsonb_pretty({0}::jsonb)",
        "{0}::jsonb || {0}::jsonb",
        "{0}::jsonb = {0}::jsonb",
        "{0}::jsonb - 5",
    ),
    *(
        "jsonb_set({0}::jsonb, '{5}', {0}::jsonb)",
        "jsonb_strip_nulls({0}::jsonb)",
        "{0}::jsonb ? 'a'",
    ),
    *(
        "jsonb_path_query_array({0}::jsonb, '$.**')",
        "jsonb_path_exists({0}::jsonb, '$[*] ? (@ > 5)')",
    ),
    *("jsonb_typeof({0}::jsonb)", "jsonb_array_length({0}::jsonb)", "json_typeof({0}::json)"),
    *("(SELECT count(*) FROM jsonb_array_elements({0}::jsonb))", "{0}::jsonb < {0}::jsonb"),
    *(
        "(SELECT count(*) FROM jsonb_each({0}::jsonb))",
        "(SELECT max(k) FROM jsonb_object_keys({0}::jsonb) k)",
    ),
    *(
        "(SELECT count(*) FROM json_array_elements_text({0}::json))",
        "jsonb_build_object('a', {0}::jsonb)",
    ),
    *("jsonb_insert({0}::jsonb, '{0}', '1')", "{0}::jsonb #- '{0}'", "to_jsonb(array[{0}, {0}])"),
    *(
        "json_build_array({0}, {0})::text",
        "(array_agg({0}::jsonb))::text",
        "{0}::jsonb IN ({0}::jsonb, '1')",
    ),
)
_ARRAYS: Final = {
    "ints": "array_fill(1, array[1000000])",
    "texts": "string_to_array(repeat('a,', 500000), ',')",
    "two": "array_fill(1, array[1000, 1000])",
    "series": "ARRAY(SELECT g FROM generate_series(1, 300000) g)",
    "literal": "('{' || repeat('1,', 500000) || '1}')::int[]",
    "strange": "('{' || repeat('\"a\\\\\"b\",', 200000) || 'x}')::text[]",
}
_OF_ARRAY: Final = (
    *(
        "{0}::text",
        "array_to_string({0}, ',')",
        "{0} || {0}",
        "{0} @> {0}",
        "{0} && {0}",
        "{0} = {0}",
    ),
    *("array_remove({0}, NULL)", "array_length({0}, 1)", "cardinality({0})", "array_cat({0}, {0})"),
    *("(SELECT count(*) FROM unnest({0}))", "(SELECT count(DISTINCT u) FROM unnest({0}) u)"),
    *(
        "array_to_json({0})::text",
        "to_jsonb({0})::text",
        "md5({0}::text)",
        "{0}[2:400000]",
        "array_dims({0})",
    ),
    *(
        "(SELECT sum(length(u::text)) FROM unnest({0}) u)",
        "{0} < {0}",
        "array_position({0}::text[], 'zz')",
    ),
    *(
        "(SELECT array_agg(u ORDER BY u DESC) FROM unnest({0}) u)::text",
        "{0}::text[]::text",
        "{0}::text::text[]",
    ),
    *(
        "(SELECT count(*) FROM words WHERE id::text = ANY ({0}::text[]))",
        "array_positions({0}::text[], '1')",
    ),
    *(
        "(SELECT count(*) FROM words WHERE id::text <> ALL ({0}::text[]))",
        "array_replace({0}::text[], 'a', 'b')",
    ),
)
_ROWS: Final = "generate_series(1, 3000) g, generate_series(1, 3000) h"
_MULTIPLIES: Final = {
    "cross join": f"SELECT count(*) FROM {_ROWS} WHERE md5(g::text || h) = 'x'",
    "cross join of a table": "SELECT count(*) FROM words a, words b, words c WHERE a.v || b.v < c.v",
    "cross join returned": "SELECT a.v, b.v, c.v FROM words a, words b, words c",
    "LIKE of each": "SELECT count(*) FROM words a, words b WHERE repeat(a.v, 1000) LIKE '%a%b%' || b.v",
    "LIKE in DuckDB": "SELECT count(*) FROM large a, large b WHERE a.v || b.v LIKE '%a%a%a%a%a%a%b'",
    "LIKE of a column": "SELECT count(*) FROM large WHERE v LIKE '%a%a%a%a%a%a%a%b'",
    "LIKE of a column, with _": "SELECT count(*) FROM large WHERE v LIKE '%a_a%a%a%a_a%a%b'",
    "LIKE of a column, aggregated": "SELECT max(v), count(*) FROM large a JOIN words w USING (id) WHERE a.v LIKE '%a%a%a%a%a%a%a%b' GROUP BY w.v",
    "ILIKE in DuckDB": "SELECT count(*) FROM large a JOIN words w USING (id) WHERE a.v ILIKE '%A%a%A%a%a%b'",
    "pattern of a column": "SELECT count(*) FROM large a JOIN words w ON a.v ~ ('(a|aa)+b' || w.v)",
    "cube": "SELECT count(*) FROM sums GROUP BY CUBE ("
    + ", ".join(f"c{n}" for n in range(12))
    + ")",
    "rollup": "SELECT count(*) FROM sums GROUP BY ROLLUP ("
    + ", ".join(f"c{n}" for n in range(12))
    + ")",
    "grouping sets": "SELECT count(*) FROM sums GROUP BY GROUPING SETS ("
    + ", ".join(f"(c{n % 12}, c{n % 7})" for n in range(4000))
    + ")",
    "cubes": "SELECT count(*) FROM sums GROUP BY CUBE (c0,c1,c2,c3), CUBE (c4,c5,c6,c7), CUBE (c8,c9,c10,c11)",
    "window": "SELECT sum(g) OVER (ORDER BY g ROWS BETWEEN 500000 PRECEDING AND 500000 FOLLOWING) FROM generate_series(1, 1000000) g",
    "window of texts": "SELECT string_agg(v, ',') OVER (ORDER BY id) FROM words",
    "window, many": "SELECT "
    + ", ".join(f"sum(id) OVER (ORDER BY id % {n + 1}, v)" for n in range(300))
    + " FROM words",
    "string_agg": "SELECT length(string_agg(repeat('x', 1000), ',')) FROM generate_series(1, 1000000)",
    "array_agg": "SELECT array_agg(g ORDER BY md5(g::text)) FROM generate_series(1, 1000000) g",
    "jsonb_agg": "SELECT jsonb_agg(g) FROM generate_series(1, 1000000) g",
    "json_object_agg": "SELECT json_object_agg(g, g) FROM generate_series(1, 1000000) g",
    "sorted by collation": 'SELECT v FROM words a, generate_series(1, 300) g ORDER BY v COLLATE "en-x-icu", g',
    "sorted": "SELECT md5(g::text) m FROM generate_series(1, 2000000) g ORDER BY m",
    "distinct": "SELECT DISTINCT md5(g::text) FROM generate_series(1, 2000000) g",
    "intersect": "SELECT g FROM generate_series(1, 3000000) g INTERSECT SELECT g FROM generate_series(1, 3000000) g",
    "series of numeric": "SELECT count(*) FROM generate_series(1::numeric, 1000000, 0.001) g",
    "series of times": "SELECT count(*) FROM generate_series('1900-01-01'::timestamptz, '2100-01-01', '1 minute') g",
    "series of days": "SELECT count(*) FROM generate_series('4000-01-01 BC'::timestamp, '9999-01-01', '1 hour') g",
    "series returned": "SELECT g FROM generate_series(1, 100000000) g",
    "series of the target list": "SELECT generate_series(1, 100000000)",
    "two series of the target list": "SELECT generate_series(1, 10000000), generate_series(1, 10000019)",
    "recursion": "WITH RECURSIVE x (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT count(*) FROM x",
    "recursion that doubles": "WITH RECURSIVE x (n) AS (SELECT 1 UNION ALL SELECT n + m FROM x, (VALUES (1), (2)) v (m)) SELECT count(*) FROM x",
    "recursion that grows": "WITH RECURSIVE x (n, s) AS (SELECT 1, 'a' UNION ALL SELECT n + 1, s || s FROM x) SELECT count(*) FROM x",
    "recursion, limited": "WITH RECURSIVE x (n) AS (SELECT 1 UNION SELECT n + 1 FROM x) SELECT n FROM x LIMIT 1000000",
    "recursion of text": "WITH RECURSIVE x (n, s) AS (SELECT 1, repeat('a', 1000000) UNION ALL SELECT n + 1, upper(s) FROM x) SELECT max(length(s)) FROM x",
    "subqueries": "SELECT (SELECT count(*) FROM words b WHERE b.v > a.v) FROM words a",
    "correlated": "SELECT count(*) FROM words a WHERE EXISTS (SELECT 1 FROM words b, words c WHERE b.v || c.v = a.v)",
    "lateral": "SELECT count(*) FROM words a, LATERAL (SELECT md5(a.v || g) FROM generate_series(1, 10000) g) s",
    "not in": "SELECT count(*) FROM words WHERE v NOT IN (SELECT md5(g::text) FROM generate_series(1, 1000000) g)",
    "insert of a query": "INSERT INTO words SELECT g, md5(g::text) FROM generate_series(10000, 3000000) g",
    "update": "UPDATE words SET v = md5(repeat(v, 200000))",
    "update by a join": "UPDATE words a SET v = b.v FROM words b, generate_series(1, 1000) g WHERE a.v || g > b.v",
    "delete": "DELETE FROM words WHERE md5(repeat(v, 200000)) = 'x'",
    "delete by a join": "DELETE FROM words a USING words b, words c WHERE a.v = b.v || c.v",
    "merge": "MERGE INTO words a USING (SELECT g FROM generate_series(1, 1000000) g) s ON a.id = s.g AND a.v = md5(s.g::text) WHEN MATCHED THEN DELETE",
    "returning": "UPDATE words SET v = v RETURNING md5(repeat(v, 200000))",
    "conflict": "INSERT INTO words SELECT g % 2000, 'x' FROM generate_series(1, 100000) g ON CONFLICT (id) DO UPDATE SET v = md5(repeat(words.v, 100000))",
    "for update": "SELECT * FROM words a, generate_series(1, 10000) g FOR UPDATE OF a",
    "a cursor": "DECLARE c CURSOR WITH HOLD FOR SELECT md5(g::text) FROM generate_series(1, 10000000) g",
    "do": "DO $$ BEGIN PERFORM md5(repeat('x', 10000000)) FROM generate_series(1, 1000); END $$",
    "create table as": "CREATE TABLE made AS SELECT g, md5(g::text) FROM generate_series(1, 3000000) g",
    "values": "VALUES " + ", ".join(["(md5(repeat('x', 10000000)))"] * 1_000),
    "a default of now": "SELECT " + ", ".join(["to_char(now(), repeat('Month DD ', 400))"] * 1_600),
    "case": "SELECT CASE "
    + " ".join(f"WHEN md5(repeat(v, 10000)) = '{n}' THEN {n}" for n in range(1_000))
    + " END FROM words",
    "format": "SELECT format('%1000000s%1000000s%1000000s', 1, 2, 3) FROM generate_series(1, 1000)",
    "zones": "SELECT count(*) FROM generate_series(1, 1000000) g WHERE to_timestamp(g) AT TIME ZONE 'Europe/Berlin' > now()",
    "dates": "SELECT count(*) FROM generate_series(1, 1000000) g WHERE to_char(to_timestamp(g), 'Day Month YYYY TZ') = 'x'",
    "intervals": "SELECT sum(g * interval '1 month 1 day 1 second') FROM generate_series(1, 1000000) g",
    "percentiles": "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY g) FROM generate_series(1, 3000000) g",
    "sleep": "SELECT pg_sleep(100)",
    "many sleeps": "SELECT pg_sleep(0.01) FROM generate_series(1, 100000)",
    "lock": "SELECT pg_advisory_lock(g) FROM generate_series(1, 10000) g",
    "sequence": "SELECT nextval('sums_id_seq') FROM generate_series(1, 1000000)",
    "setval": "SELECT setval('sums_id_seq', g) FROM generate_series(1000, 1001000) g",
    "copy out": "COPY (SELECT md5(g::text) FROM generate_series(1, 10000000) g) TO STDOUT",
    "copy out of a table": "COPY (SELECT md5(repeat(v, 200000)) FROM words) TO STDOUT",
    "a set operation of many": " UNION ALL ".join(["SELECT count(*) FROM words"] * 200),
    "large documents": "SELECT count(*) FROM large a, large b, large c WHERE a.d @> b.d AND b.d || c.d = a.d",
    "documents unnested": "SELECT count(*) FROM large, jsonb_array_elements(d) e, generate_series(1, 100) g WHERE e::text = g::text",
}
_CATALOG: Final = {
    "cross join": "SELECT count(*) FROM pg_proc a, pg_proc b, pg_proc c WHERE a.proname < b.proname || c.proname",
    "cross join returned": "SELECT a.proname, b.proname FROM pg_proc a, pg_proc b",
    "LIKE": "SELECT count(*) FROM pg_proc WHERE repeat(proname, 100000) LIKE '%a%a%a%a%a%a%a%b'",
    "LIKE of a constant": "SELECT relname FROM pg_class WHERE repeat('a', 1000000) LIKE '%a%a%a%a%a%a%a%a%b'",
    "ILIKE": "SELECT relname FROM pg_class WHERE repeat('a', 1000000) ILIKE '%a%A%a%a%a%a%a%a%b'",
    "NOT LIKE": "SELECT relname FROM pg_class WHERE repeat('a', 40000) NOT LIKE repeat('%a', 30) || 'b'",
    "SIMILAR TO": "SELECT relname FROM pg_class WHERE repeat('a', 1000000) SIMILAR TO '(a|aa)*b'",
    "a pattern": "SELECT relname FROM pg_class WHERE repeat('a', 1000000) ~ '^(a+)+$b'",
    "a replacement": "SELECT regexp_replace(repeat(relname, 1000000), 'a', repeat('b', 1000), 'g') FROM pg_class",
    "repeat": "SELECT repeat(relname, 100000000) FROM pg_class",
    "md5": "SELECT md5(repeat(proname, 1000000)) FROM pg_proc",
    "lpad": "SELECT lpad(proname, 1000000000) FROM pg_proc",
    "string_agg": "SELECT string_agg(repeat(a.proname, 1000), ',') FROM pg_proc a, pg_proc b",
    "series": "SELECT count(*) FROM pg_class, generate_series(1, 100000000) g WHERE md5(g::text) = relname",
    "recursion": "WITH RECURSIVE x (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT count(*) FROM x, pg_class",
    "window": "SELECT count(*) OVER (PARTITION BY a.proname ORDER BY b.proname) FROM pg_proc a, pg_proc b",
    "cube": "SELECT count(*) FROM pg_class GROUP BY CUBE (relname, relkind, relnamespace, reltype, relowner, relam, reltablespace, relpages, reltuples, relallvisible)",
    "definitions": "SELECT pg_get_indexdef(a.oid), pg_get_expr(relname, a.oid), format_type(a.oid, 5) FROM pg_class a, pg_class b",
    "types": "SELECT format_type(a.oid, b.oid::int) FROM pg_type a, pg_type b",
    "information_schema": "SELECT count(*) FROM information_schema.columns a, information_schema.columns b WHERE a.column_name < b.column_name || 'x'",
    "sorted": "SELECT a.proname || b.proname n FROM pg_proc a, pg_proc b ORDER BY n",
    "case": "SELECT CASE "
    + " ".join(f"WHEN relname = '{n}' THEN {n}" for n in range(5_000))
    + " END FROM pg_class",
    "list": f"SELECT relname FROM pg_class WHERE oid IN ({','.join(map(str, range(50_000)))})",
    "sums": "SELECT " + "+".join(["oid::int8"] * 3_000) + " FROM pg_class",
    "array": "SELECT relname FROM pg_class WHERE relname = ANY (string_to_array(repeat('a,', 2000000), ','))",
    "factorial": "SELECT factorial(10000) FROM pg_class",
    "numeric": "SELECT repeat('9', 100000)::numeric * oid FROM pg_class",
    "format": "SELECT format('%1000000000s', relname) FROM pg_class",
    "casts": "SELECT repeat('1', 100000)::jsonb FROM pg_class",
    "privileges": "SELECT has_table_privilege('kvorum', a.oid, 'SELECT') FROM pg_class a, pg_class b, pg_class c",
    "regclass": "SELECT a.oid::regclass::text, b.oid::regproc::text FROM pg_class a, pg_proc b",
    "views": "SELECT count(*) FROM pg_stat_activity a, pg_stat_activity b, pg_proc c, pg_proc d WHERE c.proname < d.proname",
    "explain": "EXPLAIN SELECT count(*) FROM pg_proc a, pg_proc b, pg_proc c WHERE a.proname < b.proname || c.proname",
}
_LIST: Final = ",".join(map(str, range(50_000)))


def _nested(head: str, inner: str, tail: str, depth: int) -> str:
    return head * depth + inner + tail * depth


def _texts() -> Iterator[tuple[str, str]]:
    """What is hard to read."""
    chars = 15 * _MIB
    fill = {
        "targets of constants": ("SELECT ", "1,", "1"),
        "sums": ("SELECT ", "1+", "1"),
        "strings": ("SELECT ", "'a',", "'a'"),
        "calls": ("SELECT ", "md5('a'),", "1"),
        "columns": ("SELECT ", "v,", "v FROM words"),
        "casts": ("SELECT ", "1::int,", "1"),
        "array": ("SELECT array[", "1,", "1]"),
        "array of sums": ("SELECT array[", "1+1,", "1]"),
        "array of calls": ("SELECT array[", "abs(1),", "1]"),
        "list of sums": ("SELECT 1 WHERE 1 IN (", "1+1,", "1)"),
        "list of casts": ("SELECT 1 WHERE 1 IN (", "'1'::int,", "1)"),
        "list of constants": ("SELECT 1 WHERE 1 IN (", "1,", "1)"),
        "list of parameters": ("SELECT 1 WHERE 1 IN (", "$1,", "1)"),
        "list of keys": ("SELECT v FROM words WHERE id IN (", "7,", "1)"),
        "rows": ("INSERT INTO words VALUES ", "(1,'a'),", "(1,'a')"),
        "rows of calls": ("INSERT INTO words VALUES ", "(1,md5('a')),", "(1,'a')"),
        "rows in FROM": ("SELECT count(*) FROM (VALUES ", "(1,'a'),", "(1,'a')) v"),
        "rows of sums in FROM": ("SELECT count(*) FROM (VALUES ", "(1+1),", "(1)) v"),
        "conditions": ("SELECT 1 WHERE ", "1=1 AND ", "true"),
        "choices": ("SELECT 1 FROM words WHERE ", "id=1 OR ", "true"),
        "tables": ("SELECT 1 FROM ", "words,", "words"),
        "joins": ("SELECT 1 FROM words ", "CROSS JOIN words ", ""),
        "unions": ("", "SELECT 1 UNION ", "SELECT 1"),
        "unions of all": ("", "SELECT 1 UNION ALL ", "SELECT 1"),
        "case": ("SELECT CASE ", "WHEN true THEN 1 ", "END"),
        "orders": ("SELECT 1 ORDER BY ", "1,", "1"),
        "groups": ("SELECT 1 GROUP BY ", "1,", "1"),
        "with": ("WITH a AS (SELECT 1)", ", b AS (SELECT 1)", " SELECT 1"),
        "names": ("CREATE TABLE x (", "a int,", "b int)"),
        "grants": ("GRANT SELECT ON ", "words,", "words TO public"),
        "set": ("SET search_path TO ", "a,", "b"),
        "drop": ("DROP TABLE IF EXISTS ", "a,", "b"),
        "semicolons": ("", ";", ""),
        "statements": ("", "SELECT 1;", ""),
        "comment": ("SELECT /* ", "a", "*/ 1"),
        "comments": ("SELECT ", "/**/", " 1"),
        "lines": ("SELECT ", "--\n", " 1"),
        "spaces": ("SELECT ", " ", "1"),
        "open": ("SELECT ", "(", ""),
        "unfinished string": ("SELECT '", "a", ""),
        "dollars": ("SELECT ", "$a$x$a$", ""),
        "name": ("SELECT 1 AS ", "a", ""),
        "dots": ("SELECT a", ".a", ""),
        "number": ("SELECT ", "1", ""),
        "escapes": ("SELECT E'", "\\x41", "'"),
        "unicode": ("SELECT U&'", "\\0041", "'"),
        "string": ("SELECT '", "a", "'"),
        "strings that go on": ("SELECT 'a'", "\n'a'", ""),
        "not": ("SELECT ", "NOT ", "true"),
        "minus": ("SELECT ", "- ", "1"),
        "indices": ("SELECT array[1]", "[1]", ""),
        "in a function": ("DO $$ BEGIN ", "PERFORM 1;", " END $$"),
        "execute": ("EXECUTE nothing (", "1,", "1)"),
        "explain": ("EXPLAIN SELECT ", "1+1,", "1"),
        "prepare": ("PREPARE p AS SELECT ", "1+1,", "1"),
        "cursor": ("DECLARE c CURSOR FOR SELECT ", "1+1,", "1"),
        "copy": ("COPY (SELECT ", "1+1,", "1) TO STDOUT"),
        "policy": ("CREATE TABLE x (a int CHECK (", "a=1 AND ", "true))"),
        "words": ("", "select ", ""),
        "quoted": ("SELECT ", '"a",', '"a"'),
        "json": ("SELECT '[", "1,", "1]'::jsonb"),
        "an array's text": ("SELECT '{", "1,", "1}'::int[]"),
        "an array of text": ("SELECT '{", '"a b",', "1}'::text[]"),
        "a row's text": ("SELECT ('(", "1,", "1)'::words).v"),
        "digits": ("SELECT '", "1", "'::numeric"),
        "interval": ("SELECT '", "1 day ", "'::interval"),
        "time": ("SELECT '", "2024 ", "'::timestamp"),
        "in pg_catalog": ("SELECT 1 FROM pg_class WHERE oid IN (", "1,", "1)"),
        "sums in pg_catalog": ("SELECT ", "1+1,", "1 FROM pg_class"),
        "xml": ("SELECT '", "<a>", "'::xml"),
        "range": ("SELECT '", "[1,", "'::int4range"),
    }
    for name, (head, part, tail) in fill.items():
        for size in (chars, 1_000_000, 60_000):
            text = head + part * ((size - len(head) - len(tail)) // len(part)) + tail
            yield f"{name}, {size} chars", text
    for depth in (100, 1_000, 19_000):
        yield f"parentheses {depth} deep", "SELECT " + _nested("(", "1", ")", depth)
        yield f"subqueries {depth} deep", "SELECT " + _nested("(SELECT ", "1", ")", depth)
        yield f"FROM {depth} deep", _nested("SELECT * FROM (", "SELECT 1", ") s", depth)
        yield f"calls {depth} deep", "SELECT " + _nested("abs(", "1", ")", depth)
        yield f"CASE {depth} deep", "SELECT " + _nested("CASE WHEN true THEN ", "1", " END", depth)
        yield f"array {depth} deep", "SELECT " + _nested("array[", "1", "]", depth)
        yield f"quoting {depth} deep", "SELECT " + _nested("quote_literal(", "'a'", ")", depth)
        yield f"coalesce {depth} deep", "SELECT " + _nested("coalesce(NULL, ", "1", ")", depth)
        yield f"casts {depth} deep", "SELECT 1" + "::int::text" * depth
        yield f"joins {depth} wide", "SELECT 1 FROM words" + " NATURAL JOIN words x" * depth
        yield f"with {depth} deep", _nested("WITH a AS (", "SELECT 1", ") SELECT * FROM a", depth)
        yield (
            f"EXISTS {depth} deep",
            "SELECT 1" + _nested(" WHERE EXISTS (SELECT 1", "", ")", depth),
        )
        yield (
            f"with {depth} that double",
            "WITH a0 AS (SELECT 1 x)"
            + "".join(f", a{n + 1} AS (SELECT a.x FROM a{n} a, a{n} b)" for n in range(depth))
            + f" SELECT count(*) FROM a{depth}",
        )
        yield f"unions {depth} of a table", " UNION ".join(["SELECT v FROM words"] * depth)
        yield (
            f"joins {depth} of a table",
            "SELECT count(*) FROM words w0"
            + "".join(f" JOIN words w{n} ON w{n}.id = w{n - 1}.id" for n in range(1, depth)),
        )
        yield f"sums {depth} of a column", f"SELECT {'+'.join(['id'] * depth)} FROM words"
        yield f"concatenation of {depth}", f"SELECT {'||'.join(['v'] * depth)} FROM words"
        yield (
            f"{depth} aggregates",
            f"SELECT {','.join(f'sum(id+{n})' for n in range(min(depth, 1600)))} FROM words",
        )
        yield f"{depth} equal calls", f"SELECT {','.join(['md5(v)'] * min(depth, 1600))} FROM words"
        yield (
            f"{depth} conditions",
            f"SELECT * FROM words WHERE {' OR '.join(f'id = {n} AND v > {n}::text' for n in range(depth))}",
        )
        yield (
            f"{depth} ranges",
            f"SELECT * FROM words WHERE {' OR '.join(f'id BETWEEN {n} AND {n + 5}' for n in range(depth))}",
        )
        yield (
            f"{depth} columns",
            f"CREATE TABLE wide{depth} (id int PRIMARY KEY, {', '.join(f'c{n} int' for n in range(min(depth, 1599)))})",
        )


def _with(call: str, value: str) -> str:
    return call.replace("{0}", value)


def expressions() -> Iterator[Hostile]:
    """What reads no table."""
    for (name, value), call in product(_LONG.items(), _OF_TEXT):
        yield Hostile(f"{call} of {name}", f"SELECT length({_with(call, value)})")
    for name, value in _LONG.items():
        for ask in _ASKS:
            yield Hostile(f"{ask} of {name}", f"SELECT {_with(ask, value)}")
    for number in _NUMBERS:
        yield Hostile(number, f"SELECT {number}")
    for (name, value), call in product(_JSONS.items(), _OF_JSON):
        yield Hostile(f"{call} of {name}", "SELECT " + _with(call, value))
    for (name, value), call in product(_ARRAYS.items(), _OF_ARRAY):
        yield Hostile(f"{call} of {name}", "SELECT " + _with(call, value))
    for call in _OF_TEXT:
        yield Hostile(f"{call} seven deep", f"SELECT length({_seven_deep(call)})")


def _seven_deep(call: str) -> str:
    value = "repeat('''', 1000)"
    for _ in range(7):
        value = _with(call, value)
        if len(value) > 100_000:
            break
    return value


def statements() -> Iterator[Hostile]:
    """All of them."""
    yield from expressions()
    for name, value in _LONG.items():
        for ask in _ASKS:
            yield Hostile(
                f"rows where {ask} of {name}",
                f"SELECT v FROM words WHERE {_with(ask, value.replace('8000000', '100000 + id'))}",
            )
    for outer, inner in product(_OF_TEXT, _OF_TEXT):
        value = _with(inner, "repeat(v, 20000)")
        yield Hostile(f"{outer} of {inner}", f"SELECT length({_with(outer, value)}) FROM words")
    for call in _OF_TEXT:
        value = _seven_deep(call)
        yield Hostile(f"{call} seven deep, of rows", f"SELECT length({value}) FROM words")
    for number in _NUMBERS:
        yield Hostile(f"{number} of rows", f"SELECT count({number}) FROM words WHERE id > 0")
    for name, text in _MULTIPLIES.items():
        yield Hostile(name, text)
        if not text.startswith(("COPY", "DO", "SELECT pg_sleep", "CREATE")):
            yield Hostile(f"{name}, explained", f"EXPLAIN {text}")
    for name, text in _CATALOG.items():
        yield Hostile(f"catalog: {name}", text)
    for name, text in _texts():
        yield Hostile(name, text)
    yield from _wire()


def _wire() -> Iterator[Hostile]:
    """What does not stand in the text."""
    many = tuple(str(n) for n in range(65_535))
    listed = ",".join(f"${n + 1}" for n in range(65_535))
    yield Hostile("parameters", f"SELECT 1 WHERE '1' IN ({listed})", many)
    yield Hostile("parameters of keys", f"SELECT v FROM words WHERE id IN ({listed})", many)
    yield Hostile(
        "parameters added",
        "SELECT 1 WHERE " + "+".join(f"${n + 1}::int" for n in range(15_000)) + " > 0",
        many[:15_000],
    )
    values = {
        "text": "a" * (15 * _MIB),
        "digits": "9" * (15 * _MIB),
        "array": "{" + "1," * (7 * _MIB) + "1}",
        "array of text": "{" + '"a\\"b",' * (2 * _MIB) + "1}",
        "array, deep": "{" * (7 * _MIB),
        "jsonb": "[" + "1," * (7 * _MIB) + "1]",
        "objects": "[" + '{"a":1},' * (_MIB) + "1]",
        "jsonb, deep": "[" * (15 * _MIB),
        "row": "(" + "1," * (7 * _MIB) + "1)",
        "hex": "\\x" + "61" * (7 * _MIB),
        "octal": "\\141" * (3 * _MIB),
        "times": "1 day " * (2 * _MIB),
        "pattern": "(a|b)*" * (2 * _MIB),
        "wildcards": "%a_" * (5 * _MIB),
    }
    types = (
        "text",
        "jsonb",
        "json",
        "int[]",
        "text[]",
        "numeric",
        "bytea",
        "interval",
        "timestamptz",
        "uuid",
        "varchar(5)",
        "float8",
        "date",
        "bool",
        "words",
        "int",
        "bit varying",
        "name",
        "time",
        "regclass",
        "jsonb[]",
        "numeric[]",
        "timestamptz[]",
    )
    for (name, value), type_ in product(values.items(), types):
        yield Hostile(f"{name} as {type_}", f"SELECT length($1::{type_}::text)", (value,))
    for name, value in values.items():
        yield Hostile(f"matching {name}", "SELECT count(*) FROM words WHERE v LIKE $1", (value,))
        yield Hostile(f"~ {name}", "SELECT count(*) FROM words WHERE v ~ $1", (value,))
        yield Hostile(f"stored {name}", "INSERT INTO words VALUES (900000, $1)", (value,))
        yield Hostile(f"a key {name}", "SELECT v FROM words WHERE id = $1", (value,))
        for kind in ("TEXT", "CSV"):
            yield Hostile(
                f"COPY {kind} of {name}",
                f"COPY words FROM STDIN (FORMAT {kind})",
                lines=b"900001" + (b"\t" if kind == "TEXT" else b",") + value.encode() + b"\n",
            )
    for name, line in {
        "tabs": b"\t",
        "commas": b",",
        "newlines": b"\n",
        "quotes": b'"',
        "escapes": b"\\",
    }.items():
        for kind in ("TEXT", "CSV"):
            yield Hostile(
                f"COPY {kind} of {name}",
                f"COPY words FROM STDIN (FORMAT {kind})",
                lines=line * (15 * _MIB),
            )
    yield Hostile(
        "COPY of documents",
        "COPY large FROM STDIN",
        lines=b"9\ta\t[" + b"1," * (7 * _MIB) + b"1]\n",
    )
    yield Hostile(
        "COPY of short rows",
        "COPY words FROM STDIN",
        lines=b"".join(b"%d\ta\n" % n for n in range(20_000, 1_000_000)),
    )
