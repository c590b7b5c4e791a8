"""What a batch of the sink is made of, and which tables and rules it meets. Pure.

A batch has one part per table. A part is one attempt's staged tasks (its manifest) and what its
rows mean:

    twice    "last"    of rows with one key the last task's, and of a task's the last chunk's, stays
             "refuse"  two rows with one key end the batch (SINK_DUPLICATE)
             "order"   of rows with one key the one of the highest order stays (a chunk's third
                       list); of equal ones the last
    fresh    a row whose key is there already ends the batch (SINK_KEY_EXISTS)
    inline   {task: chunk}: tasks of one small chunk that was never staged: it came with the commit
    shape    [[column id, name, type, nullable], …] of the table as its rows were encoded: a table
             that means something else by them now ends the batch (SINK_ALTERED)
    placed   its tasks may have laid rows in place (placed_rows.py)
    path     namespace.table, as its writer calls it, for errors about a table that is gone
    replace  [start, end, where]: what is there in this range of user keys (b"" = no bound), or what
             of it `where` is true for ("" = all), goes in the same transaction
    given    ids of columns: of a row that is there already only these are replaced; the others of
             the staged row are of a row that is new

A part that only puts and deletes rows of a table without rules is written blindly, chunk by chunk;
any other is *careful*: it reads before it writes (`careful_batch`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from kv.base import limits
from kv.base.errors import InvalidArgument, TooLarge
from procedures.sink.format.sink_records import (
    add_crc,
    checked_int,
    checked_text,
    marker_key,
    unpack_chunk,
)

SPARK_JOB: Final = "kvorum.spark_job"
JOB_SIGNAL: Final = "job"  # under which a job's program reports its writes (spark_job)
LAST: Final = "last"
REFUSE: Final = "refuse"
ORDER: Final = "order"
_TWICE: Final = (LAST, REFUSE, ORDER)
_MANIFEST_FIELDS: Final = 5
_REPLACE_FIELDS: Final = 3
_DIGEST_FIELDS: Final = 2
_SHAPE: Final = [int, str, str, bool]


@dataclass(frozen=True, slots=True)
class Part:
    """See the module; `manifest` is [[part, task, chunks, rows, crc], …]."""

    attempt: str
    table: int
    manifest: list[list[Any]]
    twice: str = LAST
    fresh: bool = False
    replace: Sequence[Any] | None = None
    inline: Mapping[str, bytes] = field(default_factory=dict)
    shape: Sequence[Sequence[Any]] = ()
    path: str = ""
    placed: bool = False
    given: Sequence[int] = ()

    @property
    def staged(self) -> list[list[Any]]:
        """The manifest of the tasks that staged their rows."""
        return [entry for entry in self.manifest if entry[1] not in self.inline]

    @property
    def rows(self) -> int:
        return sum(entry[3] for entry in self.manifest)

    @property
    def chunks(self) -> int:
        return sum(entry[2] for entry in self.manifest)

    @property
    def plain(self) -> bool:
        """Whether it may be written blindly, as far as the part itself goes."""
        plain = not self.fresh and self.replace is None and self.twice != ORDER
        return plain and not self.given


def two_rows(shown: str) -> str:
    """Of rows of a batch with this key, where there may be one: what is wrong, and what to do."""
    return (
        f"the batch has two rows with the key {shown}: drop one of them (df.dropDuplicates), or say"
        " which one stays: option dedupeBy=COLUMN (the highest), or duplicates=last (any)"
    )


_PART_FIELDS: Final = [one.name for one in fields(Part)]


def parts_of(args: Any) -> list[Part]:
    """The parts in a checked request; the first is in the request itself."""
    return [
        Part(**{name: one[name] for name in _PART_FIELDS if name in one})
        for one in (args, *args.get("more", ()))
    ]


def marker_of(args: Any) -> bytes:
    """Where the marker of a checked request is; of a job, which has any number of tables, at table
    0.
    """
    return marker_key(args["app"], 0 if args.get("job") else args["table"])


def checked_part(given: object) -> dict[str, Any]:
    """One part from the wire, with no other fields than it needs. Raises InvalidArgument."""
    if not isinstance(given, dict):
        raise InvalidArgument(f"a part must be a map, got {type(given).__name__}")
    if missing := {"attempt", "table", "manifest"} - set(given):
        raise InvalidArgument(f"a part lacks {', '.join(sorted(missing))}")
    part: dict[str, Any] = {
        "attempt": checked_text(given["attempt"], "attempt", limits.SINK_ATTEMPT_CHARS_MAX),
        "table": checked_int(given["table"], "table id", 100, 2**31 - 1),
        "manifest": _checked_manifest(given["manifest"]),
    }
    twice = given.get("twice", LAST)
    if twice not in _TWICE:
        raise InvalidArgument(f"twice must be one of {', '.join(_TWICE)}, got {twice!r:.40}")
    if twice != LAST:
        part["twice"] = twice
    part |= {name: True for name in ("fresh", "placed") if given.get(name)}
    if given.get("replace") is not None:
        part["replace"] = _checked_replace(given["replace"])
    if given.get("inline"):
        part["inline"] = _checked_inline(given["inline"], part["manifest"])
    if given.get("path"):
        part["path"] = checked_text(given["path"], "path")
    if given.get("given"):
        part["given"] = _checked_given(given["given"])
    if given.get("shape"):
        part["shape"] = _checked_shape(given["shape"])
    return part


def checked_request(request: object) -> dict[str, object]:
    """The checked request of SINK_COMMIT; names and shapes as in kv.base.methods.
    Raises InvalidArgument, TooLarge.
    """
    if not isinstance(request, dict):
        raise InvalidArgument(f"SINK_COMMIT needs a map, got {type(request).__name__}")
    if missing := {"attempt", "table", "app", "version", "query", "manifest"} - set(request):
        raise InvalidArgument(f"SINK_COMMIT lacks {', '.join(sorted(missing))}")
    app, query = request["app"], request["query"]
    if app != "":
        checked_text(app, "app")
    if not isinstance(query, str):
        raise InvalidArgument("query must be a text")
    args = checked_part(request)
    args |= {
        "app": app,
        "version": checked_int(request["version"], "version", 0, 2**62),
        "query": query,
    }
    if (digest := request.get("digest")) is not None:
        if not isinstance(digest, list) or len(digest) != _DIGEST_FIELDS:
            raise InvalidArgument(f"digest is [rows, sum], got {digest!r:.80}")
        args["digest"] = [checked_int(one, "digest", 0, 2**62) for one in digest]
    return args | {name: True for name in ("reset", "early") if request.get(name)}


def _checked_manifest(manifest: object) -> list[list[object]]:
    if not isinstance(manifest, list) or len(manifest) > limits.SINK_TASKS_MAX:
        raise InvalidArgument(f"manifest must be a list of at most {limits.SINK_TASKS_MAX} tasks")
    for entry in manifest:
        if not isinstance(entry, list) or len(entry) != _MANIFEST_FIELDS:
            raise InvalidArgument(
                f"a manifest entry is [part, task, chunks, rows, crc], got {entry!r:.80}"
            )
        checked_text(entry[1], "task")
        for value, what in zip(
            (entry[0], *entry[2:]), ("part", "chunks", "rows", "crc"), strict=True
        ):
            checked_int(value, what, 0, 2**62)
    if len({entry[1] for entry in manifest}) < len(manifest):
        raise InvalidArgument("manifest names a task twice")
    return manifest


def _checked_inline(inline: object, manifest: list[list[object]]) -> dict[str, bytes]:
    """Whole tasks, as the manifest has them. Raises InvalidArgument, TooLarge."""
    named = {entry[1]: entry for entry in manifest}
    if not isinstance(inline, dict) or not all(
        isinstance(task, str) and isinstance(chunk, bytes) for task, chunk in inline.items()
    ):
        raise InvalidArgument("inline must be a map of tasks to chunks")
    if (size := sum(map(len, inline.values()))) > limits.SINK_INLINE_TOTAL:
        raise TooLarge(
            f"{size} bytes of chunks in one commit, the limit is {limits.SINK_INLINE_TOTAL}: stage"
            " them",
            details={"what": "inline", "limit": limits.SINK_INLINE_TOTAL, "actual": size},
        )
    for task, chunk in inline.items():
        keys, _ = unpack_chunk(chunk, f"chunk of task {task:.80}")
        _, _, chunks, rows, crc = named.get(task, (0, task, 0, 0, 0))
        if (chunks, rows, crc) != (1, len(keys), add_crc(0, 0, chunk)):
            raise InvalidArgument(
                f"the chunk of task {task:.80} is not what the manifest says: one chunk of"
                f" {len(keys)} rows",
                code="SINK_MANIFEST",
            )
    return inline


def _checked_shape(shape: object) -> list[list[object]]:
    """With columns that come or go as well. Raises InvalidArgument."""
    if not isinstance(shape, list) or len(shape) > 2 * limits.COLUMNS_MAX:
        raise InvalidArgument(f"shape must be a list of at most {2 * limits.COLUMNS_MAX} columns")
    for column in shape:
        if not isinstance(column, list) or [type(one) for one in column] != _SHAPE:
            raise InvalidArgument(
                f"a column of a shape is [id, name, type, nullable], got {column!r:.80}"
            )
    return shape


def _checked_given(given: object) -> list[int]:
    if not isinstance(given, list) or len(given) > limits.COLUMNS_MAX:
        raise InvalidArgument(f"given must be a list of at most {limits.COLUMNS_MAX} columns")
    return [checked_int(one, "the id of a column", 1, 2**31 - 1) for one in given]


def _checked_replace(replace: object) -> list[object]:
    if (
        not isinstance(replace, list)
        or len(replace) != _REPLACE_FIELDS
        or not all(isinstance(bound, bytes) for bound in replace[:2])
        or not isinstance(replace[2], str)
    ):
        raise InvalidArgument(f"replace is [start, end, condition], got {replace!r:.80}")
    if replace[1] and replace[0] >= replace[1]:
        raise InvalidArgument("replace: the start of its range is not below its end")
    return replace
