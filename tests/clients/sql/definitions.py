"""Definitions over several schemas and changes of their rows, by chance: names, types, keys, views
and functions that move, are renamed and dropped while statements use them, by name or along
search_path. What comes next depends on what there is, so PostgreSQL is asked while a case is made,
and its answers are recorded.

    python -m tests.clients.sql.definitions host=… port=… user=…      records PostgreSQL's

A case is [seed, [[session, statement, answer], …]]; its answers are those of `Sessions`. After each
definition comes STATE: what is declared then. What Kvorum refuses as not supported ends a case.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

import psycopg

from tests.clients.sql.sessions import HERE, Sessions

RECORDED: Final = HERE / "definitions.json"
SEEDS: Final = 12
_STEPS: Final = 14
_BEGIN: Final = (
    "create schema s1",
    "create schema s2",
    "create type e1 as enum ('a', 'b')",
    "create type s1.e2 as enum ('a', 'b')",
    "create table t1 (id int primary key, n int unique deferrable, m int default 1, e e1)",
    "create table s1.t1 (id int primary key deferrable, n int unique deferrable initially deferred,"
    " m int, e s1.e2, p int references public.t1 deferrable)",
    "create table s2.t2 (id int primary key, n int, m int default 0, e e1,"
    " p int references t1 on update cascade on delete cascade)",
    "insert into t1 values (1, 1, 1, 'a'), (2, 2, 2, 'b'), (3, 3, 3, null)",
    "insert into s1.t1 values (1, 1, 1, 'a', 1), (2, 2, 2, 'b', 2)",
    "insert into s2.t2 values (1, 1, 1, 'a', 1), (2, 1, 1, 'b', 1)",
)
_OURS: Final = "n.nspname in ('public', 's1', 's2', 's3')"
STATE: Final = (
    "select 'relation', n.nspname, c.relname, c.relkind::text, null from pg_class c"
    f" join pg_namespace n on n.oid = relnamespace where {_OURS}"
    " and relkind in ('r', 'v', 'S', 'i')"
    " union all select 'column', n.nspname, c.relname, attname, attnotnull::text from pg_attribute"
    " join pg_class c on c.oid = attrelid join pg_namespace n on n.oid = relnamespace"
    f" where {_OURS} and relkind = 'r' and attnum > 0 and not attisdropped"
    " union all select 'constraint ' || contype::text, n.nspname, c.relname, conname,"
    " concat(condeferrable, condeferred, f.nspname, r.relname) from pg_constraint"
    " join pg_class c on c.oid = conrelid join pg_namespace n on n.oid = c.relnamespace"
    " left join pg_class r on r.oid = confrelid left join pg_namespace f on f.oid = r.relnamespace"
    f" where {_OURS} and contype in ('p', 'u', 'c', 'f')"
    " union all select 'type', n.nspname, typname, null, null from pg_type"
    f" join pg_namespace n on n.oid = typnamespace where typtype = 'e' and {_OURS}"
    " union all select 'function', n.nspname, proname, null, null from pg_proc"
    f" join pg_namespace n on n.oid = pronamespace where {_OURS}"
)
_NAMED: Final = {
    "relations": "select n.nspname, relname, relkind::text from pg_class"
    f" join pg_namespace n on n.oid = relnamespace where {_OURS} and relkind in ('r', 'v', 'S')",
    "keys": "select n.nspname, c.relname, conname, condeferrable from pg_constraint"
    " join pg_class c on c.oid = conrelid join pg_namespace n on n.oid = relnamespace"
    f" where {_OURS}",
    "types": "select n.nspname, typname from pg_type join pg_namespace n on n.oid = typnamespace"
    f" where typtype = 'e' and {_OURS}",
    "functions": "select n.nspname, proname from pg_proc"
    f" join pg_namespace n on n.oid = pronamespace where {_OURS}",
    "schemas": f"select nspname from pg_namespace n where {_OURS}",
}


class Making:
    """One case. `look`: another connection to its database."""

    def __init__(self, seed: int, look: psycopg.Connection) -> None:
        self.chance, self._look = random.Random(seed), look
        self.block = False  # the first session is in a transaction
        self.there: dict[str, list[tuple[Any, ...]]] = {}

    def statements(self) -> Iterator[tuple[str, str]]:
        """Session and statement, each to be done before the next is asked for."""
        yield from (("1", one) for one in _BEGIN)
        for _ in range(_STEPS):
            self.there = {
                name: self._look.execute(f"{text} order by 1, 2".encode()).fetchall()
                if name != "schemas"
                else self._look.execute(f"{text} order by 1".encode()).fetchall()
                for name, text in _NAMED.items()
            }
            yield from self._next()
        if self.block:
            yield "1", "commit"
        yield "1", STATE

    def _next(self) -> Iterator[tuple[str, str]]:
        by, roll = "1" if self.block or self._roll(0.75) else "2", self.chance.random()
        if self.block and roll < 0.4:
            yield by, self._of_block()
        elif not self.block and roll < 0.1:
            by, self.block = "1", True
            yield by, "begin" + self._one("", " isolation level repeatable read")
        elif not self.block and roll < 0.55:
            yield by, self._definition()
            yield by, STATE
        elif roll < 0.6:
            path = self.chance.sample(("s1", "s2", "s3"), self.chance.randint(0, 2))
            yield by, f"set search_path = {', '.join((*path, 'public'))}"
        else:
            yield by, self._change()

    # -- chance

    def _roll(self, part: float) -> bool:
        return self.chance.random() < part

    def _one(self, *texts: str) -> str:
        return self.chance.choice(texts)

    def _number(self) -> str:
        return self._one("null", *"1234512345")

    def _named(self, every: Sequence[tuple[Any, ...]], other: str) -> str:
        """One of these, with or without its schema; seldom what is perhaps not there."""
        if not every or self._roll(0.05):
            return self._new(other)
        schema, name, *_ = self.chance.choice(every)
        return str(name) if self._roll(0.35) else f"{schema}.{name}"

    def _relation(self, kinds: str, other: str = "t") -> str:
        return self._named([one for one in self.there["relations"] if one[2] in kinds], other)

    def _function(self) -> str:
        return self._named(self.there["functions"], "f")

    def _type(self) -> str:
        return self._named(self.there["types"], "e") if self.there["types"] else "text"

    def _schema(self) -> str:
        return str(self.chance.choice(self.there["schemas"])[0])

    def _new(self, letter: str) -> str:
        name = f"{letter}{self.chance.randint(1, 3)}"
        return f"{self._schema()}.{name}" if self._roll(0.7) else name

    def _late(self) -> str:
        return self._one("", "", "deferrable", "deferrable initially deferred")

    def _condition(self) -> str:
        return self._one(
            f"id = {self._number()}",
            f"m > {self._number()}",
            f"id in ({self._number()}, {self._number()})",
            f"n >= {self._number()} and id < {self._number()}",
            "n is null",
            "true",
        )

    # -- statements

    def _definition(self) -> str:
        made, moved, gone = self._makes, self._moves, self._drops
        return self.chance.choice((made, made, moved, moved, gone))()

    def _makes(self) -> str:
        table, source = self._relation("r"), self._relation("rv")
        body = self._one(
            f"select id, n, m from {source} where {self._condition()}",
            f"select a.id, a.n, b.m from {source} a join {self._relation('rv')} b on a.id = b.id",
            f"select id, {self._function()}(n) as n, m from {source}",
            f"select id, n, m from {source} where e = 'a'::{self._type()}",
            f"select id, nextval('{self._relation('S', 'q')}')::int as n, m from {source}",
            f"select max(id) as id, n, sum(m)::int as m from {source} group by n",
        )
        then = self._one("", " on delete cascade", " on delete set null", " on update cascade")
        key = self._one(
            f"unique (n) {self._late()}",
            f"unique (n, m) {self._late()}",
            f"foreign key (n) references {self._relation('r')}{then} {self._late()}",
            f"check ({self._condition()})",
        )
        return self._one(
            f"create table {self._new('t')} (id int primary key, n int {self._one('', 'unique')}, "
            f"m int default {self._one('1', self._function() + '(1)')}, e {self._type()}, "
            f"p int references {self._relation('r')}{then} {self._late()})",
            f"create schema s{self.chance.randint(1, 3)}",
            f"create type {self._new('e')} as enum ('a', 'b')",
            f"create {self._one('', 'or replace ')}view {self._new('v')} as {body}",
            f"create view {self._new('v')} as {body}",
            f"create {self._one('', 'or replace ')}function {self._new('f')}(int) returns int "
            f"language sql as 'select $1 + {self.chance.randint(0, 2)}'",
            f"create sequence {self._new('q')}",
            f"create {self._one('', 'unique ')}index on {table} ({self._one('n', 'm', '(n + m)')})",
            f"alter table {table} add {self._one('', f'constraint k{self._number()} ')}{key}",
            f"alter table {table} add column if not exists m int default 3",
        )

    def _moves(self) -> str:
        to = self._one(
            "rename to {}" + str(self.chance.randint(1, 3)), f"set schema {self._schema()}"
        )
        late = self._one("deferrable", "not deferrable", "deferrable initially deferred")
        found = [
            f"alter schema {self._schema()} rename to s{self.chance.randint(1, 3)}",
            f"alter type {self._type()} {self._one('add value', 'rename value')} 'b'"
            + self._one("", " to 'zz'"),
            f"alter type {self._type()} rename to e{self.chance.randint(1, 3)}",
            f"alter function {self._function()} {to.format('f')}",
            f"alter table {self._relation('r')} {to.format('t')}",
            f"alter view {self._relation('v', 'v')} {to.format('v')}",
            f"alter sequence {self._relation('S', 'q')} {to.format('q')}",
            f"alter table {self._relation('r')} rename column {self._one('m to mm', 'mm to m')}",
            f"alter table {self._relation('r')} alter column m set default "
            + self._one("7", "null", f"nextval('{self._relation('S', 'q')}')"),
        ]
        for schema, table, key, _ in self.there["keys"][:1]:
            found.append(f"alter table {schema}.{table} rename constraint {key} to k1")
        for schema, table, key, _ in self.there["keys"][-2:]:
            found.append(f"alter table {schema}.{table} alter constraint {key} {late}")
        return self._one(*found)

    def _drops(self) -> str:
        more = self._one("", "", " cascade")
        found = [
            f"drop table {self._relation('r')}{more}",
            f"drop view {self._relation('v', 'v')}{more}",
            f"drop sequence {self._relation('S', 'q')}{more}",
            f"drop function {self._function()}{more}",
            f"drop type {self._type()}{more}",
            f"drop schema s{self.chance.randint(1, 3)}{more}",
            f"truncate {self._relation('r')}{more}",
            f"alter table {self._relation('r')} drop column n",
        ]
        for schema, table, key, _ in self.there["keys"][-1:]:
            found.append(f"alter table {schema}.{table} drop constraint {key}{more}")
        return self._one(*found)

    def _of_block(self) -> str:
        late = [str(key) for *_, key, deferrable in self.there["keys"] if deferrable]
        found = self._one(
            *("commit", "commit", "rollback", "savepoint x", "rollback to x", "release x"),
            f"set constraints {self._one('all', 'all', *late)} deferred",
            f"set constraints {self._one('all', 'all', *late)} immediate",
        )
        self.block = found not in ("commit", "rollback")
        return found

    def _change(self) -> str:
        table, source = self._relation("r"), self._relation("rv")
        rows = ", ".join(
            f"({self.chance.randint(1, 6)}, {self._number()}, {self._number()})"
            for _ in range(self.chance.randint(1, 3))
        )
        new = self._one(
            *("n = n + 1", "n = m, m = n", "id = id + 1", "id = 7 - id", "n = null"),
            f"p = {self._number()}",
            f"n = {self._function()}(n)",
            f"e = '{self._one('a', 'b', 'zz')}'",
        )
        return self._one(
            f"insert into {table} (id, n, m) values {rows}",
            f"insert into {table} (id, n, m) values {rows} on conflict (id) do nothing",
            f"insert into {table} (id, n, p) values (7, {self._number()}, {self._number()})",
            f"insert into {table} (id, n, e) values (8, {self._number()}, 'a')",
            f"update {table} set {new} where {self._condition()}",
            f"update {table} set {new}",
            f"delete from {table} where {self._condition()}",
            f"select {self._function()}({self._number()})",
            f"select id, n, m from {source} where {self._condition()}",
            f"select e from {source} where e = 'a'",
            f"select a.id, b.n from {source} a join {self._relation('rv')} b on a.n = b.n",
        )


def _asked(seed: int, dsn: str) -> list[Any]:
    """A case, made and asked of a server."""
    sessions, found = Sessions(dsn), list[list[Any]]()
    try:
        with psycopg.connect(dsn, autocommit=True) as look:
            for session, text in Making(seed, look).statements():
                found.append([session, text, sessions.ask(session, text)])
    finally:
        sessions.close()
    return [seed, found]


def main() -> None:
    dsn, found = " ".join(sys.argv[1:]), list[list[Any]]()
    with psycopg.connect(dsn, dbname="postgres", autocommit=True) as conn:
        for seed in range(SEEDS):
            conn.execute("DROP DATABASE IF EXISTS recorded_definitions")
            conn.execute("CREATE DATABASE recorded_definitions")
            found.append(_asked(seed, f"{dsn} dbname=recorded_definitions"))
        conn.execute("DROP DATABASE recorded_definitions")
    lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in found)
    RECORDED.write_text(f"[\n{lines}\n]\n", "utf-8")


if __name__ == "__main__":
    main()
