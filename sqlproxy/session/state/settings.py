"""The settings of one session: SET, SHOW, RESET, and what is reported of them to a client unasked.

A setting has a value for the session and, inside a transaction, what it was before (a rollback
takes SET back, SET LOCAL ends with the transaction). Settings that decide nothing here are accepted
where PostgreSQL's clients send them, with the only value that is true; another value is refused.

Names and words are PostgreSQL 15's; `kvorum.…` are our own. A name with a dot that is nobody's is
the client's own and keeps any text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kv.base.limits import (
    SQL_SETTING_CHARS_MAX,
    SQL_SETTINGS_OWN_MAX,
    SQL_STATEMENT_MEMORY_BYTES_DEFAULT,
    SQL_STATEMENT_MEMORY_BYTES_MIN,
)
from kv.base.timestamps import MAX
from sqlproxy.pg import zones
from sqlproxy.pg.style import is_utf8
from sqlproxy.session.state import ignored_settings
from sqlproxy.values.errors import (
    CANNOT_CHANGE_NOW,
    CONFIGURATION_LIMIT,
    INVALID_PARAMETER,
    READ_ONLY_TRANSACTION,
    UNDEFINED_OBJECT,
    SqlError,
    unsupported,
)
from sqlproxy.values.memory import SETTING

SERVER_VERSION: Final = "15.0"
SERVER_VERSION_NUM: Final = "150000"
READ_COMMITTED: Final = "read committed"
ISOLATION_LEVELS: Final = ("serializable", "repeatable read", READ_COMMITTED, "read uncommitted")
_TRUE: Final = frozenset({"on", "true", "yes", "1", "t", "y"})
_FALSE: Final = frozenset({"off", "false", "no", "0", "f", "n"})
_DURATION: Final = re.compile(r"\s*(-?\d{1,40}(?:\.\d{1,40})?)\s*(us|ms|s|min|h|d)?\s*")
_SIZE: Final = re.compile(r"\s*(\d{1,40}(?:\.\d{1,40})?)\s*(B|kB|MB|GB|TB)?\s*")
_SIZES: Final = 'Valid units for this parameter are "B", "kB", "MB", "GB", and "TB".'
_NAME_BYTES_MAX: Final = 63
_UNIT_MS: Final = {"us": 0.001, "ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

CAUSAL_TOKEN: Final = "kvorum.causal_token"
ONLY_READS: Final = "kvorum.read_only"

Check = Callable[[str, str], str]  # name, value → canonical value; raises SqlError


@dataclass(frozen=True, slots=True)
class Setting:
    name: str  # as it is shown
    default: str
    check: Check
    description: str
    reported: bool = False  # every change is reported to the client (ParameterStatus)


def _bad(name: str, value: str, allowed: str = "", *, hint: str = "") -> SqlError:
    if allowed:
        hint = f"Available values: {allowed}."
    return SqlError(
        INVALID_PARAMETER, f'invalid value for parameter "{name}": "{value:.100}"', hint=hint
    )


def _any(name: str, value: str) -> str:
    if len(value) > SQL_SETTING_CHARS_MAX:
        raise SqlError(
            INVALID_PARAMETER,
            f'parameter "{name}" takes {SQL_SETTING_CHARS_MAX} characters, got {len(value)}',
        )
    return value


def _application(name: str, value: str) -> str:
    """As PostgreSQL keeps it: the log of requests and other sessions show it."""
    kept = value.encode("utf-8", "replace")[:_NAME_BYTES_MAX].decode(errors="ignore").encode()
    return "".join([chr(byte) if 32 <= byte < 127 else "?" for byte in kept])


def _fixed(name: str, value: str) -> str:
    raise SqlError(CANNOT_CHANGE_NOW, f'parameter "{name}" cannot be changed')


def only_reads() -> SqlError:
    """What is answered to who would write in a session that only reads."""
    return SqlError(
        READ_ONLY_TRANSACTION,
        f"this session only reads: it has begun with {ONLY_READS}",
        hint="Over HTTP say read_only false.",
    )


def _only(*allowed: str) -> Check:
    def check(name: str, value: str) -> str:
        for one in allowed:
            if value.lower() == one.lower():
                return one
        raise _bad(name, value, ", ".join(allowed))

    return check


def boolean(name: str, value: str) -> str:
    """`on` or `off`."""
    if value.lower() in _TRUE:
        return "on"
    if value.lower() in _FALSE:
        return "off"
    raise SqlError(INVALID_PARAMETER, f'parameter "{name}" requires a Boolean value')


def _always(truth: bool) -> Check:
    """A switch that stands here for good."""

    def check(name: str, value: str) -> str:
        found = boolean(name, value)
        if found != ("on" if truth else "off"):
            raise unsupported(f"{name} = {found}")
        return found

    return check


def _integer(low: int, high: int) -> Check:
    def check(name: str, value: str) -> str:
        try:
            number = int(value)
        except ValueError:
            raise _bad(name, value) from None
        if not low <= number <= high:
            raise SqlError(
                INVALID_PARAMETER,
                f'{number} is outside the valid range for parameter "{name}" ({low} .. {high})',
            )
        return str(number)

    return check


def _number(name: str, value: str) -> str:
    try:
        if float(value) >= 0:
            return value.strip()
    except ValueError:
        pass
    raise _bad(name, value)


_UNIT_BYTES: Final = {"B": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


def _bytes(name: str, value: str) -> str:
    """Bytes, with a unit or without; shown without."""
    found = _SIZE.fullmatch(value)
    if found is None:
        raise _bad(name, value, hint=_SIZES)
    size = round(float(found[1]) * _UNIT_BYTES[found[2] or "B"])
    if size < SQL_STATEMENT_MEMORY_BYTES_MIN:
        raise SqlError(
            INVALID_PARAMETER,
            f'{size} B is outside the valid range for parameter "{name}" '
            f"({SQL_STATEMENT_MEMORY_BYTES_MIN} B or more)",
        )
    return str(size)


def _memory(name: str, value: str) -> str:
    found = _SIZE.fullmatch(value)
    if found is None:
        raise _bad(name, value, hint=_SIZES)
    return f"{found[1]}{found[2] or 'kB'}"


def _duration(name: str, value: str) -> str:
    """Milliseconds, as PostgreSQL shows them: `0`, `250ms`, `5s`, `1min`."""
    found = _DURATION.fullmatch(value)
    if found is None:
        units = '"us", "ms", "s", "min", "h", and "d"'
        raise _bad(name, value, hint=f"Valid units for this parameter are {units}.")
    ms = round(float(found[1]) * _UNIT_MS[found[2] or "ms"])
    if not 0 <= ms < 1 << 31:
        raise SqlError(
            INVALID_PARAMETER,
            f'{ms} ms is outside the valid range for parameter "{name}" (0 .. 2147483647)',
        )
    for unit in ("d", "h", "min", "s"):
        if ms and ms % int(_UNIT_MS[unit]) == 0:
            return f"{ms // int(_UNIT_MS[unit])}{unit}"
    return f"{ms}ms" if ms else "0"


@lru_cache(maxsize=256)
def milliseconds(shown: str) -> int:
    """The inverse of what `_duration` gives."""
    found = _DURATION.fullmatch(shown)
    assert found is not None
    return round(float(found[1]) * _UNIT_MS[found[2] or "ms"])


USER_SCHEMA: Final = "$user"
_IN_PATH: Final = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([^\s",]+))\s*(?:,|$)')


@lru_cache(maxsize=256)
def search_path(said: str) -> tuple[str, ...]:
    """The schemas that search_path names, without the system's."""
    found = [
        quoted.replace('""', '"') if quoted or not plain else plain.lower()
        for quoted, plain in _IN_PATH.findall(said)
    ]
    return tuple(one for one in dict.fromkeys(found) if one and one not in _SYSTEM_SCHEMAS)


_SYSTEM_SCHEMAS: Final = ("pg_catalog", "information_schema", "kvorum")


def _time_zone(name: str, value: str) -> str:
    return zones.setting(value)


def _encoding(name: str, value: str) -> str:
    if is_utf8(value):
        return value if value == "UNICODE" else "UTF8"
    raise unsupported(f"the client encoding {value:.40}", hint="Kvorum speaks UTF8 only.")


def _date_style(name: str, value: str) -> str:
    words = {word.strip().upper() for word in value.split(",")}
    if words <= {"ISO", "MDY", "YMD", "DMY", "US", "EUROPEAN", "DEFAULT"}:
        if words & {"DMY", "EUROPEAN", "YMD"}:
            raise unsupported(f"DateStyle {value:.40}", hint="It is ISO, MDY.")
        return "ISO, MDY"
    raise unsupported(f"DateStyle {value:.40}", hint="It is ISO, MDY.")


def _isolation(name: str, value: str) -> str:
    found = " ".join(value.lower().split())
    if found not in ISOLATION_LEVELS:
        raise _bad(name, value, ", ".join(ISOLATION_LEVELS))
    return found


def _as_of(name: str, value: str) -> str:
    return _any(name, value.strip())


def _causal_token(name: str, value: str) -> str:
    text = value.strip()
    if text and not (text.isascii() and text.isdigit() and int(text[:21]) <= MAX):
        raise _bad(name, value, hint="Give what SHOW kvorum.causal_token has said elsewhere.")
    return text


def _indifferent() -> Iterator[Setting]:
    result = "Decides nothing here."
    for name, default in ignored_settings.SWITCHES.items():
        yield Setting(name, default, boolean, result)
    for name, default in ignored_settings.NUMBERS.items():
        yield Setting(name, default, _number, result)
    for name, default in ignored_settings.MEMORY.items():
        yield Setting(name, default, _memory, result)
    for name, allowed in ignored_settings.CHOICES.items():
        yield Setting(name, allowed[0], _only(*allowed), result)
    for name, value in ignored_settings.FIXED.items():
        yield Setting(name, value, _fixed, "As it is.")


SETTINGS: Final[Mapping[str, Setting]] = {
    setting.name.lower(): setting
    for setting in (
        Setting(
            "application_name", "", _application, "What the client calls itself.", reported=True
        ),
        Setting("bytea_output", "hex", _only("hex"), "Text form of bytea."),
        Setting("client_encoding", "UTF8", _encoding, "UTF8.", reported=True),
        Setting(
            "client_min_messages",
            "notice",
            _only(
                *[
                    "debug5",
                    "debug4",
                    "debug3",
                    "debug2",
                    "debug1",
                    "log",
                    "notice",
                    "warning",
                    "error",
                ]
            ),
            "The least severe notices that are sent.",
        ),
        Setting("check_function_bodies", "on", boolean, "There are no functions to check."),
        Setting("DateStyle", "ISO, MDY", _date_style, "Text form of dates.", reported=True),
        Setting("default_table_access_method", "heap", _only("heap"), "Decides nothing here."),
        Setting("default_tablespace", "", _only(""), "There are no tablespaces."),
        Setting("default_text_search_config", "pg_catalog.simple", _any, "Decides nothing here."),
        Setting("default_transaction_deferrable", "off", boolean, "Of new transactions."),
        Setting(
            "default_transaction_isolation",
            READ_COMMITTED,
            _isolation,
            "serializable, repeatable read or read committed.",
        ),
        Setting("default_transaction_read_only", "off", boolean, "Of new transactions.", True),
        Setting("escape_string_warning", "on", boolean, "Decides nothing here."),
        Setting("extra_float_digits", "1", _integer(-15, 3), "Floats are shown exactly."),
        Setting("idle_in_transaction_session_timeout", "0", _duration, "0: no limit."),
        Setting("idle_session_timeout", "0", _duration, "0: no limit."),
        Setting("in_hot_standby", "off", _fixed, "There is no standby.", reported=True),
        Setting("integer_datetimes", "on", _fixed, "Times are counted in microseconds.", True),
        Setting("IntervalStyle", "postgres", _only("postgres"), "Text form of intervals.", True),
        Setting("is_superuser", "on", _fixed, "Whether the role may do everything.", True),
        Setting("jit", "off", boolean, "Decides nothing here."),
        Setting(
            "kvorum.autocommit_before_ddl",
            "off",
            boolean,
            "A definition in a block commits the changes before it.",
        ),
        Setting("kvorum.as_of", "", _as_of, "Read a moment of the past; empty: now."),
        Setting(ONLY_READS, "off", boolean, "The session only reads; it is not switched off."),
        Setting(
            CAUSAL_TOKEN,
            "",
            _causal_token,
            "Set: this session goes on after all that another has seen, whose token it is.",
        ),
        Setting("lock_timeout", "0", _duration, "How long a commit waits for others; 0: usual."),
        Setting("max_identifier_length", "63", _fixed, "Bytes of a name."),
        Setting("max_index_keys", "32", _fixed, "Columns of an index."),
        Setting("row_security", "on", boolean, "There are no policies."),
        Setting("search_path", '"$user", public', _any, "Schemas, where names are looked for."),
        Setting("server_encoding", "UTF8", _fixed, "UTF8.", reported=True),
        Setting("server_version", SERVER_VERSION, _fixed, "Whose behaviour this is.", True),
        Setting("server_version_num", SERVER_VERSION_NUM, _fixed, "The same as a number."),
        Setting("session_authorization", "", _fixed, "The role.", reported=True),
        Setting("session_replication_role", "origin", _only("origin"), "Decides nothing here."),
        Setting("standard_conforming_strings", "on", _always(True), "As in the standard.", True),
        Setting(
            SETTING,
            str(SQL_STATEMENT_MEMORY_BYTES_DEFAULT),
            _bytes,
            "Bytes that the statements of a session hold; larger ones spill, or are refused.",
        ),
        Setting("statement_timeout", "0", _duration, "0: no limit but the store's."),
        Setting("synchronize_seqscans", "on", boolean, "Decides nothing here."),
        Setting("TimeZone", "UTC", _time_zone, "Of timestamps with time zone.", reported=True),
        Setting("transaction_deferrable", "off", boolean, "Of this transaction; no one waits."),
        Setting("transaction_isolation", READ_COMMITTED, _isolation, "Of this transaction."),
        Setting("transaction_read_only", "off", boolean, "Of this transaction."),
        Setting("xmloption", "content", _any, "There is no XML."),
        Setting("role", "none", _any, "Whose privileges count; none: the user's."),
        *_indifferent(),
    )
}


_LIMITS: Final = ("statement_timeout", "lock_timeout")
_READ_ONLY: Final = "default_transaction_read_only"
_SPECIAL: Final = (*_LIMITS, SETTING, _READ_ONLY, ONLY_READS, "kvorum.as_of")


Marked = tuple[dict[str, str], dict[str, str | None], dict[str, str | None]]


class Settings:
    """The values of one session. Names in any case."""

    def __init__(
        self,
        given: Mapping[str, str],
        usual: Mapping[str, str] | None = None,
    ) -> None:
        """`given`: of the client's start-up; they are the session's defaults. `usual`: the node's,
        where they are others than ours. Raises SqlError.
        """
        self._defaults = {key: one.default for key, one in SETTINGS.items()} | dict(usual or {})
        self._usual = {key: self._defaults[key] for key in _SPECIAL}
        for name, value in given.items():
            key = name.lower()
            self._defaults[key] = self.checked(key, value)
        self._values = dict(self._defaults)
        self._plain: bool | None = None
        self.changes = 0  # how often any of them changed, for who remembers what it made of them
        self._durations: dict[str, int] = {}  # in ms, of those that were asked for
        self._marked: Marked | None = None  # what `mark` said last, if it still stands
        self._before: dict[str, str | None] = {}  # at the begin of the transaction; None: not set
        self._local: dict[str, str | None] = {}  # what SET LOCAL stands in front of

    @staticmethod
    def checked(key: str, value: str) -> str:
        """The value as it is kept. Raises SqlError."""
        setting = SETTINGS.get(key)
        if setting is not None:
            return setting.check(setting.name, value)
        if "." not in key:
            raise _unknown(key)
        _any(key[:100], key)
        return _any(key, value)

    def get(self, name: str) -> str:
        """Raises SqlError (42704)."""
        value = self._values.get(name) or self._values.get(name.lower())
        if value is None:
            raise _unknown(name)
        return value

    @property
    def plain(self) -> bool:
        """Whether nothing is said that bounds, refuses or redirects a statement."""
        if self._plain is None:
            self._plain = all(self._values[key] == self._usual[key] for key in _SPECIAL)
        return self._plain

    @property
    def only_reads(self) -> bool:
        """Whether nothing is written in this session, whatever else it sets."""
        return self._values[ONLY_READS] == "on"

    def ms(self, name: str) -> int:
        """A duration."""
        found = self._durations.get(name)
        if found is None:
            found = self._durations[name] = milliseconds(self.get(name))
        return found

    def set(self, name: str, value: str | None, *, local: bool = False) -> str:
        """The value it has now; None: its default. Raises SqlError."""
        key = name.lower()
        if value is None:
            found = self._defaults.get(key, "")
            if key not in self._defaults and "." not in key:
                raise _unknown(name)
            setting = SETTINGS.get(key)
            if setting is not None and setting.check is _fixed and key != "session_authorization":
                _fixed(setting.name, "")  # SET SESSION AUTHORIZATION DEFAULT says what is so
        else:
            found = self.checked(key, value)
        if found != "on" and key in (_READ_ONLY, ONLY_READS) and self.only_reads:
            raise only_reads()
        known = self._values.get(key)
        own = max(len(self._values) - len(SETTINGS), len(self._before))
        if known is None and own >= SQL_SETTINGS_OWN_MAX:
            raise SqlError(
                CONFIGURATION_LIMIT,
                f"a session has at most {SQL_SETTINGS_OWN_MAX} settings of its own",
                hint="Values that are many belong into a table, a temporary one perhaps.",
            )
        if local:
            self._local.setdefault(key, known)
        else:
            self._before.setdefault(key, self._local.pop(key, known))
        self._values[key] = found
        self._changed()
        return found

    def mark(self) -> Marked:
        """What stands now, for `go_back`; the same one until something is set."""
        if self._marked is None:
            self._marked = (dict(self._values), dict(self._before), dict(self._local))
        return self._marked

    def go_back(self, marked: Marked) -> dict[str, str]:
        """What was set since the mark is undone; the reported ones that changed by that."""
        if marked is self._marked:
            return {}
        shown = self.reported()
        values, before, local = marked
        self._values, self._before, self._local = dict(values), dict(before), dict(local)
        self._changed()
        self._marked = marked
        return {k: v for k, v in self.reported().items() if shown.get(k) != v}

    def _changed(self) -> None:
        self._marked = None
        self.changes += 1
        self._plain = None
        self._durations.clear()

    def fix(self, name: str, value: str) -> None:
        """Set what no SET changes, e.g. session_authorization."""
        self._defaults[name.lower()] = self._values[name.lower()] = value
        self._changed()

    def reset_all(self) -> dict[str, str]:
        """RESET ALL; the reported ones that changed."""
        before = self.reported()
        for key in list(self._values):
            setting = SETTINGS.get(key)
            if setting is None or (setting.check is not _fixed and key != "role"):
                if key in self._defaults:
                    self.set(key, None)
                else:
                    known = self._values.pop(key)
                    self._before.setdefault(key, self._local.pop(key, known))
                    self._changed()
        return {k: v for k, v in self.reported().items() if before.get(k) != v}

    def end(self, *, committed: bool) -> dict[str, str]:
        """The transaction is over; the reported ones that changed by that."""
        if not self._before and not self._local:
            return {}
        before = self.reported()
        gone = self._local if committed else {**self._local, **self._before}
        for key, value in gone.items():
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value
        self._before, self._local = {}, {}
        self._changed()
        return {k: v for k, v in self.reported().items() if before.get(k) != v}

    def reported(self) -> dict[str, str]:
        """What is reported to every client when it has changed, by shown name."""
        return {s.name: self._values[key] for key, s in SETTINGS.items() if s.reported}

    def all(self) -> list[tuple[str, str, str]]:
        """Name, value, description of each, in order."""
        rows = [(s.name, self._values[k], s.description) for k, s in SETTINGS.items()]
        rows += [(k, v, "") for k, v in self._values.items() if k not in SETTINGS]
        return sorted(rows, key=lambda row: row[0].lower())

    def __getitem__(self, name: str) -> str:
        return self.get(name)


def shown_name(name: str) -> str:
    """How a setting is written in answers."""
    setting = SETTINGS.get(name.lower())
    return setting.name if setting is not None else name.lower()


def _unknown(name: str) -> SqlError:
    return SqlError(UNDEFINED_OBJECT, f'unrecognized configuration parameter "{name:.100}"')
