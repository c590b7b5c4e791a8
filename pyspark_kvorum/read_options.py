"""The options of `format("kvorum")` for reading, beside those of pyspark_kvorum.options.

asOf              the state at a version, at a time (2026-11-22T16:00:00Z, without a zone: UTC;
                  a date: its beginning), or so long ago (-10s); default: now. `at` is the same
near              where the executors run, as labels of nodes (dc=NAME,rack=NAME,server=NAME; empty:
                  nowhere in particular): the nearest replicas answer, leaders are left alone
owner             whom `kvorum snapshot list` names for what this read holds
parts             tasks to read with; default: one per 32 MiB of each partition
changes           true: the stream of the table's changes (pyspark_kvorum.changes)
startingVersion   of a stream: earliest (all rows first, the default), latest, or a version:
                  what was committed after it
maxRowsPerBatch   of a stream: about so many rows in a micro-batch; never less than a transaction
holdHistory       of a stream: true: nothing that it has not read yet is collected
numericAsText     true: columns of type numeric are strings, as PostgreSQL prints them: NaN, and
                  more digits than Spark's 38
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from kv.base import timestamps
from kv.base.adapters import ago
from kv.base.config_values import domains
from kv.base.errors import InvalidArgument
from kv.base.limits import OWNER_CHARS_MAX, SPARK_BATCH_ROWS_MAX, SPARK_PARTS_MAX

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
KNOWN: Final = frozenset(
    {
        "asof",
        "near",
        "owner",
        "parts",
        "changes",
        "startingversion",
        "maxrowsperbatch",
        "holdhistory",
    }
    | {"numericastext"}
)
_FIRST_MS: Final = 946_684_800_000  # 2000-01-01: no version is older
_EXAMPLE_MS: Final = 1_795_363_200_000
_STREAM_ONLY: Final[tuple[str, ...]] = ("startingversion", "maxrowsperbatch", "holdhistory")
_BATCH_ONLY: Final[tuple[str, ...]] = ("at", "asof", "near", "where", "parts")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Checked. `at` 0 = now; `parts` 0 = as the size wants; `max_rows` 0 = what there is."""

    at: int = 0
    owner: str = ""
    parts: int = 0
    changes: bool = False
    starting: str | int = EARLIEST
    max_rows: int = 0
    hold: bool = False
    numeric_as_text: bool = False
    near: tuple[str, str, str] | None = None

    @staticmethod
    def parse(raw: Mapping[str, str]) -> ReadOptions:
        """Raises InvalidArgument with the option's name, what was given and what is allowed."""
        given = {k.lower(): v.strip() for k, v in raw.items()}
        changes = _flag(given, "changes")
        if "at" in given and "asof" in given:
            raise InvalidArgument("options at and asOf are the same: give one of them")
        if not changes and (stray := [name for name in _STREAM_ONLY if name in given]):
            raise InvalidArgument(
                f"option {stray[0]} is for a stream of changes: readStream with option changes=true"
            )
        if changes and (stray := [name for name in _BATCH_ONLY if name in given]):
            raise InvalidArgument(
                f"option {stray[0]} is not for a stream of changes: begin it by startingVersion,"
                " and filter what comes in Spark"
            )
        owner = given.get("owner") or f"spark {getpass.getuser()}@{socket.gethostname()}"
        return ReadOptions(
            at=_moment(given.get("asof") or given.get("at") or ""),
            owner=owner[:OWNER_CHARS_MAX],
            parts=_number(given, "parts", 0, SPARK_PARTS_MAX),
            changes=changes,
            starting=_starting(given.get("startingversion", EARLIEST)),
            max_rows=_number(given, "maxrowsperbatch", 0, SPARK_BATCH_ROWS_MAX),
            hold=_flag(given, "holdhistory"),
            numeric_as_text=_flag(given, "numericastext"),
            near=_near(given.get("near")),
        )


def _near(text: str | None) -> tuple[str, str, str] | None:
    try:
        return None if text is None else domains(text)
    except ValueError as e:
        raise InvalidArgument(f"option near must be {e}, got {text!r:.80}") from e


def _moment(text: str) -> int:
    """A version; of a time, the highest of its millisecond."""
    if not text:
        return 0
    if text.isdigit():
        if not 0 < int(text) <= timestamps.MAX:
            raise InvalidArgument(f"option asOf must be at most {timestamps.MAX}, got {text}")
        return _version(text, "asOf")
    try:
        if (at := ago(text)) is not None:
            return at
        moment = datetime.fromisoformat(text)
    except ValueError as e:
        raise InvalidArgument(
            f"option asOf must be a version or a time as 2026-11-22T16:00:00Z or -10s, got {text!r}"
        ) from e
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return timestamps.compose(round(moment.timestamp() * 1000) + 1) - 1


def _version(text: str, option: str) -> int:
    """Raises InvalidArgument for what no cluster gave out: a date or seconds, written as a number,
    would be versions of 1970.
    """
    version = int(text)
    if timestamps.physical_ms(version) >= _FIRST_MS:
        return version
    instead = "for a time write 2026-11-22T16:00:00Z"
    if option == "startingVersion":
        instead = "it takes versions, no times"
    elif len(text) == len("YYYYMMDD"):
        instead = f"for the date write {text[:4]}-{text[4:6]}-{text[6:]}"
    now = timestamps.compose(_EXAMPLE_MS)
    raise InvalidArgument(
        f"option {option} {text} is no version (they have 18 digits, as {now}): {instead}"
    )


def _starting(text: str) -> str | int:
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    if text.isdigit() and 0 < int(text) <= timestamps.MAX:
        return _version(text, "startingVersion")
    raise InvalidArgument(
        f"option startingVersion must be earliest, latest or a version, got {text!r}"
    )


def _flag(given: Mapping[str, str], name: str) -> bool:
    text = given.get(name, "false").lower()
    if text not in ("true", "false"):
        raise InvalidArgument(f"option {name} must be true or false, got {text!r}")
    return text == "true"


def _number(given: Mapping[str, str], name: str, default: int, high: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not text.isdigit() or not 0 < int(text) <= high:
        raise InvalidArgument(f"option {name} must be between 1 and {high}, got {text!r}")
    return int(text)
