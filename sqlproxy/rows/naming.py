"""Which names things may have, and the names that PostgreSQL gives to what was not named.

    namespaces, tags        ASCII letters, digits, '_' and '-': they stand in addresses and options;
                            `database:schema` is the namespace of a schema of SQL beside public
    all others              anything but control characters, up to 64 bytes: who joins them with a
                            namespace cuts at the first separator, and SQL quotes them

SQL folds an unquoted identifier before it comes here. Longer ones are cut to 63 bytes by the front
end, as PostgreSQL does.

    made_name("t", "a_b", "key")     "t_a_b_key"; cut to 63 bytes, the longer part first
    first_free(…)                    the same with 1, 2, … after it, the first that is not taken

Source: PostgreSQL 15, makeObjectName and ChooseRelationName (indexcmds.c).
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from typing import Final, TypeAlias

from kv.base.errors import InvalidArgument, TooLarge
from kv.base.limits import (
    NAME_CHARS_MAX,
    PARTITION_BYTES_MAX_MAX,
    PARTITION_BYTES_MAX_MIN,
    REPLICAS_MAX,
    TAGS_MAX,
)
from kv.base.placement import LEADERS_RULE, SURVIVE_RULE, canonical_leaders, is_goal
from kv.base.shards import SHARD_RULE, is_shard
from sqlproxy.values.types import NAME_BYTES_MAX

PUBLIC: Final = "public"  # the schema that a database's own namespace is
TEMPORARY: Final = "pg_temp"  # a session's own, which has a number behind it
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
INVALID_NAME: Final = "42602"


def _refused(what: str, name: object, allowed: str) -> InvalidArgument:
    told = "database or schema" if what == "namespace" else what
    return InvalidArgument(
        f"{what} name {name!r:.100} is not allowed: {allowed}",
        details={
            "what": what,
            "name": str(name)[:100],
            "limit": NAME_CHARS_MAX,
            "sqlstate": INVALID_NAME,
            "sql_message": f"{told} name {name!r:.100} is not allowed: {allowed}",
        },
    )


def namespace_of(database: str, schema: str) -> str:
    """The namespace that has a schema's relations."""
    return database if schema == PUBLIC else f"{database}:{schema}"


def database_of(namespace: str) -> str:
    """The database whose schema a namespace is."""
    return namespace.partition(":")[0]


def schema_of(namespace: str) -> str:
    """The schema that it is there."""
    return namespace.partition(":")[2] or PUBLIC


def is_temporary(schema: str) -> bool:
    """Whether it is the schema of what one session has for itself."""
    return schema == TEMPORARY or schema.startswith(f"{TEMPORARY}_")


Reference: TypeAlias = str | list[str]
"""What a procedure's arguments name: a name in the namespace that it is about, or [schema, name] in
another one of its database."""


def reference(name: str, of: str) -> Reference:
    """A bound name, as the procedure that is about `of` is told it."""
    return bare(name) if schema_in(name) == schema_in(of) else [schema_in(name), bare(name)]


def located(namespace: str, named: object) -> tuple[str, str]:
    """The namespace and the name that a reference means. Raises InvalidArgument."""
    match named:
        case str():
            return namespace, named
        case [str(schema), str(name)]:
            return namespace_of(database_of(namespace), schema), name
        case _:
            raise InvalidArgument(f"a name, or [schema, name], is needed here, got {named!r:.80}")


def shown_space(namespace: str) -> str:
    """A namespace as who speaks SQL knows it: the database or the schema that it is."""
    if ":" not in namespace:
        return f'database "{namespace}"'
    return f'schema "{schema_of(namespace)}"'


def shown_name(namespace: str, name: str) -> str:
    """As messages show it: with its schema, unless that is public."""
    return name if ":" not in namespace else f"{schema_of(namespace)}.{name}"


class InSchema(str):
    """The name of something in another schema than public. As text it is the name alone; it equals
    no name in another schema.
    """

    __slots__ = ("schema",)
    schema: str

    def __new__(cls, name: str, schema: str) -> InSchema:
        made = super().__new__(cls, name)
        made.schema = schema
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InSchema) and self.key == other.key

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def key(self) -> tuple[str, str]:
        return self.schema, bare(self)


def bare(name: str) -> str:
    """Without its schema."""
    return "".join(name)


def named(schema: str, name: str) -> str:
    """A name in a schema, as statements are bound to it."""
    return bare(name) if schema == PUBLIC else InSchema(bare(name), schema)


def schema_in(name: str) -> str:
    """The schema of such a name."""
    return name.schema if isinstance(name, InSchema) else PUBLIC


def check_name(what: str, name: object) -> None:
    """Raise InvalidArgument unless `name` may name a namespace or a tag."""
    parts = name.split(":", 1) if isinstance(name, str) else []
    allowed = 2 if what == "namespace" else 1
    fits = 0 < len(parts) <= allowed and all(
        _NAME.fullmatch(part) and len(part) <= NAME_CHARS_MAX for part in parts
    )
    if not fits:
        raise _refused(
            what, name, f"1 to {NAME_CHARS_MAX} letters, digits, '_' and '-', the first one not '-'"
        )


def check_schema_name(name: str) -> None:
    """Raise InvalidArgument unless a schema may be called so: its namespace has its name."""
    check_name("schema", name)


def check_sql_name(what: str, name: object) -> None:
    """Raise InvalidArgument unless `name` may name a table, a column or another thing of SQL."""
    if not isinstance(name, str) or not name or _CONTROL.search(name) or _too_long(name):
        raise _refused(
            what, name, f"1 to {NAME_CHARS_MAX} bytes of text without control characters"
        )


def _too_long(name: str) -> bool:
    return len(name.encode(errors="surrogatepass")) > NAME_CHARS_MAX


def check_placement(where: str, replicas: int | None, tags: Sequence[str]) -> None:
    """Raises InvalidArgument, TooLarge."""
    if replicas is not None and not (type(replicas) is int and 1 <= replicas <= REPLICAS_MAX):
        raise InvalidArgument(
            f"{where}: replicas must be 1 to {REPLICAS_MAX}, got {replicas!r}",
            details={"limit": REPLICAS_MAX, "actual": replicas},
        )
    if len(tags) > TAGS_MAX:
        raise TooLarge(
            f"{where} has {len(tags)} tags; the limit is {TAGS_MAX}",
            details={"what": "tags", "limit": TAGS_MAX, "actual": len(tags)},
        )
    for tag in tags:
        check_name(f"{where}: tag", tag)


def check_partition_bytes(where: str, size: int | None) -> None:
    """Raises InvalidArgument."""
    low, high = PARTITION_BYTES_MAX_MIN, PARTITION_BYTES_MAX_MAX
    if size is not None and not (type(size) is int and low <= size <= high):
        raise InvalidArgument(
            f"{where}: partition_bytes must be {low} to {high}, got {size!r:.40}",
            details={"limit": high, "actual": size},
        )


def check_shard(where: str, shard: object) -> None:
    """Raises InvalidArgument."""
    if not is_shard(shard):
        raise InvalidArgument(f"{where}: shard must be {SHARD_RULE}; got {shard!r:.60}")


def check_survival(where: str, survive: object, leaders: object) -> None:
    """Raises InvalidArgument."""
    if not is_goal(survive):
        raise InvalidArgument(f"{where}: survive must be {SURVIVE_RULE}; got {survive!r:.60}")
    try:
        canonical_leaders(leaders if isinstance(leaders, str) else "?")
    except ValueError as error:
        raise InvalidArgument(
            f"{where}: leaders must be labels, {LEADERS_RULE}; got {leaders!r:.60}"
        ) from error


# -- the names that PostgreSQL makes


def nextval_of(sequence: str, schema: str = PUBLIC) -> str:
    """The default that takes numbers from a sequence: its name is read as SQL reads names."""
    shown = _shown(sequence) if schema == PUBLIC else f"{_shown(schema)}.{_shown(sequence)}"
    return f"nextval('{shown}'::regclass)"


_NUMBERED: Final = re.compile(r"(?<!\w)((?:next|curr|set)val\(\s*')((?:[^']|'')+)(?=')")


def renumbered(sql: str, sequence: str, schema: str, default: str) -> str:
    """An expression that is kept, where a sequence has another name. `default`: what takes numbers
    from it now (`nextval_of`).
    """
    names = {f"{_shown(schema)}.{_shown(sequence)}"}
    if schema == PUBLIC:  # what is kept is read without a path
        names.add(_shown(sequence))
    new = _NUMBERED.findall(default)[0][1]

    def put(found: re.Match[str]) -> str:
        name = found[2] if '"' in found[2] else found[2].lower()
        return found[1] + (new if name in names else found[2])

    return _NUMBERED.sub(put, sql)


def _shown(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return name
    return '"' + name.replace('"', '""').replace("'", "''") + '"'


def cut(name: str, size: int = NAME_BYTES_MAX) -> str:
    """The first characters that fit in so many bytes."""
    return name.encode()[:size].decode(errors="ignore")


def made_name(first: str, second: str, label: str) -> str:
    """`first_second_label` (without what is empty) in at most 63 bytes: whichever of the first two
    is longer is cut.
    """
    sizes = [len(first.encode()), len(second.encode())]
    room = NAME_BYTES_MAX - (len(label) + 1 if label else 0) - (1 if second else 0)
    while sum(sizes) > room:
        sizes[0 if sizes[0] > sizes[1] else 1] -= 1
    parts = [cut(first, sizes[0])]
    if second:
        parts.append(cut(second, sizes[1]))
    if label:
        parts.append(label)
    return "_".join(parts)


def first_free(first: str, second: str, label: str, taken: Container[str]) -> str:
    """The first of `…_label`, `…_label1`, `…_label2`, … that is not taken."""
    name, number = made_name(first, second, label), 0
    while name in taken:
        number += 1
        name = made_name(first, second, f"{label}{number}")
    return name


def joined_columns(names: Iterable[str]) -> str:
    """The middle part of the name of a constraint or an index over several columns."""
    found = ""
    for name in names:
        found = f"{found}_{name}" if found else name
        if len(found.encode()) >= NAME_BYTES_MAX + 1:
            break
    return found
