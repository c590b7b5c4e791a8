"""The formats of COPY: rows of values in user form ↔ bytes. Pure.

    text     one line per row, columns by tab, NULL is \\N, escapes by backslash; `\\.` ends
    csv      RFC 4180 with PostgreSQL's options: NULL is an empty field without quotes
    binary   "PGCOPY\\n\\xff\\r\\n\\0", i32 flags, i32 length of an extension; per row i16 columns,
             then i32 length (-1 = NULL) and bytes each; i16 -1 ends

A Reader takes any cut of the stream and gives out the rows that are complete. Its errors are
PostgreSQL's (22P04 for the format, the type's own for a value), with the line in their context.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Final, Protocol

from sqlproxy.pg import binary, text
from sqlproxy.pg.answers import Columns, CopyFormat, Field
from sqlproxy.pg.copying_binary import fitting, quick_rows
from sqlproxy.pg.copying_columns import columns_of, converters
from sqlproxy.pg.style import Style
from sqlproxy.values.breaks import pause, paused
from sqlproxy.values.errors import BAD_COPY_FORMAT, LIMIT_EXCEEDED, SqlError

Row = tuple[object, ...]
SIGNATURE: Final = b"PGCOPY\n\xff\r\n\x00"
HEADER: Final = SIGNATURE + bytes(8)  # no flags, no extension
_PIECE: Final = 1 << 12  # replacements between two breaks
_SHOWN_CHARS: Final = 100  # of a line or value, in the context of an error
_I2, _I4 = struct.Struct(">h"), struct.Struct(">i")
_EXTENSION: Final = struct.Struct(">II")
_HAS_OIDS: Final = 1 << 16
_CRITICAL: Final = 0xFFFF0000

_ESCAPED = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.)|$)", re.DOTALL)
_NAMED: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class Reader(Protocol):
    def feed(self, data: bytes) -> list[Row]:
        """The rows that are complete with it. Raises SqlError."""
        ...

    def feed_many(self, data: bytes) -> list[Row] | Columns:
        """The same, column by column where that is quicker."""
        ...

    def finish(self) -> list[Row]:
        """The stream is over: what was left. Raises SqlError."""
        ...

    @property
    def unread(self) -> int:
        """Bytes that are kept of a row which is not complete."""
        ...


def reader(of: CopyFormat, fields: Sequence[Field], style: Style, piece_bytes_max: int) -> Reader:
    """`piece_bytes_max`: of one row."""
    if of.kind == "binary":
        return _BinaryReader(of, fields, piece_bytes_max)
    if of.kind == "csv":
        return _CsvReader(of, fields, style, piece_bytes_max)
    return _TextReader(of, fields, style, piece_bytes_max)


# -- in: lines


class _Lines:
    """What text and csv share: lines of UTF-8, the header, values, and where an error is."""

    _first_line: re.Pattern[bytes]  # a line, or its beginning
    _stray: str  # what PostgreSQL calls a line end that is no data

    def __init__(
        self, of: CopyFormat, fields: Sequence[Field], style: Style, piece_bytes_max: int
    ) -> None:
        self._of = of
        self._names = [field.name for field in fields]
        self._readers = [
            fitting(text.reader(field.oid, style, field.typmod), fit)
            for field, fit in zip(fields, of.fits or (None,) * len(fields), strict=True)
        ]
        self._piece_bytes_max = piece_bytes_max
        self._rest = b""
        self._line = 0  # number of the last line that was begun
        self._ended = False  # by `\.`
        self._header = of.header or of.header_match
        self._newline = b""  # the first one says what all are
        self._sought = 0  # so many bytes have none
        self._strays = False  # there are others; they may stand where they are no data
        # Looked at by column where every cell is as it stands; a csv's options say otherwise.
        self._convert = converters([(field.oid, field.typmod) for field in fields], self._readers)
        self._escape = "\\"

    def feed(self, data: bytes) -> list[Row]:
        return self._rows(self._lines(data))

    def feed_many(self, data: bytes) -> list[Row] | Columns:
        lines = self._lines(data)
        if lines and not (self._header or self._strays) and self._between_rows:
            of = self._of
            found = columns_of(lines, of.delimiter, of.null, self._escape, self._convert)
            if found is not None:
                self._line += len(lines)
                return found
        return self._rows(lines)

    @property
    def _between_rows(self) -> bool:
        return True

    def _lines(self, data: bytes) -> list[str]:
        """Those that are complete with it."""
        if self._ended:
            return []
        data = self._rest + data if self._rest else data
        if not self._newline and len(data) < 2 * self._sought:
            self._keep(data)
            return []
        newline = self._newline or self._find_newline(data)
        end = data.rfind(newline) + 1 if newline else 0
        if not end:
            self._keep(data)
            return []
        end += len(newline) - 1
        self._keep(data[end:])
        return self._decoded(data[: end - len(newline)])

    @property
    def unread(self) -> int:
        return len(self._rest)

    def finish(self) -> list[Row]:
        self._sought = 0
        rows = self._rows(self._lines(b""))
        rest, self._rest = self._rest, b""
        if self._ended:
            return rows
        if not self._newline and rest.endswith(b"\r") and self._first_end(rest) >= 0:
            rest, self._newline = rest[:-1], b"\r"
        rows += self._rows(self._decoded(rest)) if rest else []
        self._over()
        return rows

    def _keep(self, rest: bytes) -> None:
        if len(rest) > self._piece_bytes_max:
            raise SqlError(
                LIMIT_EXCEEDED,
                f"a row of a COPY has more than {self._piece_bytes_max} bytes",
                where=self._where(self._line + 1),
            )
        self._rest = rest

    def _find_newline(self, data: bytes) -> bytes:
        at = self._first_end(data)
        if at < 0 or (data[at] == 13 and at + 1 == len(data)):  # \n may follow
            self._sought = len(data)
            return b""
        self._newline = b"\n" if data[at] == 10 else b"\r\n" if data[at + 1] == 10 else b"\r"
        return self._newline

    def _first_end(self, data: bytes) -> int:
        """Where the first line ends; -1: not here."""
        found = self._first_line.match(data)
        at = found.end() if found else 0
        return at if data[at : at + 1] in (b"\r", b"\n") else -1

    def _no_stray(self, line: str) -> None:
        """Raises SqlError: it has a line end of another kind than the first was."""
        at = self._first_end(line.encode()) if self._strays else -1
        if at >= 0:
            name = "carriage return" if line.encode()[at] == 13 else "newline"
            raise self._bad(f"{self._stray} {name} found in data")

    def _decoded(self, data: bytes) -> list[str]:
        try:
            found = data.decode()
        except UnicodeDecodeError as error:
            wrong = " ".join(f"0x{byte:02x}" for byte in data[error.start : error.end])
            line = self._line + 1 + data[: error.start].count(b"\n")
            message = f'invalid byte sequence for encoding "UTF8": {wrong}'
            raise SqlError("22021", message, where=self._where(line)) from None
        if "\x00" in found:
            line = self._line + 1 + found[: found.index("\x00")].count("\n")
            message = 'invalid byte sequence for encoding "UTF8": 0x00'
            raise SqlError("22021", message, where=self._where(line))
        newline = (self._newline or b"\n").decode()
        ends = found.count("\r") + (0 if newline == "\n" else found.count("\n"))
        odd = ends > (0 if newline == "\n" else len(newline) * found.count(newline))
        self._strays = odd or (self._strays and not self._between_rows)
        return found.split(newline)

    def _rows(self, lines: list[str]) -> list[Row]:
        raise NotImplementedError

    def _over(self) -> None:
        """Called after the last line."""

    def _where(self, line: int, rest: str = "") -> str:
        return f"COPY {self._of.table}, line {line}{rest}"

    def _check_header(self, cells: Sequence[str | None], line: str) -> None:
        self._header = False
        if not self._of.header_match:
            return
        if len(cells) != len(self._names):
            raise self._bad(
                f"wrong number of fields in header line: got {len(cells)}, expected "
                f"{len(self._names)}",
                line,
            )
        for at, (found, name) in enumerate(zip(cells, self._names, strict=True), 1):
            if found != name:
                shown = "null value" if found is None else f'"{found}"'
                raise self._bad(
                    f"column name mismatch in header line field {at}: got {shown}, expected "
                    f'"{name}"',
                    line,
                )

    def _bad(self, message: str, line: str | None = None) -> SqlError:
        shown = "" if line is None else f': "{_shown(line)}"'
        return SqlError(BAD_COPY_FORMAT, message, where=self._where(self._line, shown))

    def _row(self, cells: Sequence[str | None], line: str) -> Row:
        if len(cells) != len(self._readers):
            if len(cells) > len(self._readers):
                raise self._bad("extra data after last expected column", line)
            self._row_of(cells)  # a value that cannot be read is reported first
            missing = self._names[len(cells)]
            raise self._bad(f'missing data for column "{missing}"', line)
        return self._row_of(cells)

    def _row_of(self, cells: Sequence[str | None]) -> Row:
        try:
            return tuple(
                [
                    None if cell is None else read(cell)
                    for read, cell in zip(self._readers, cells, strict=False)
                ]
            )
        except SqlError as error:
            error.where = self._where(self._line, self._culprit(cells))
            raise

    def _culprit(self, cells: Sequence[str | None]) -> str:
        """The column whose value cannot be read: found only when there is one."""
        for name, read, cell in zip(self._names, self._readers, cells, strict=False):
            try:
                if cell is not None:
                    read(cell)
            except SqlError:
                return f', column {name}: "{_shown(cell or "")}"'
        return ""


def _shown(value: str) -> str:
    return value if len(value) <= _SHOWN_CHARS else f"{value[:_SHOWN_CHARS]}..."


class _TextReader(_Lines):
    _first_line = re.compile(rb"(?:[^\\\r\n]++|\\.)*+", re.DOTALL)
    _stray = "literal"

    def finish(self) -> list[Row]:
        rows = super().finish()
        rest, self._rest = self._rest, b""
        if rest:  # its last backslash has nothing after it, and is none
            line = rest.decode().removesuffix((self._newline or b"\n").decode())
            rows += self._rows([line[:-1]])
        return rows

    def _rows(self, lines: list[str]) -> list[Row]:
        rows: list[Row] = []
        delimiter, null = self._of.delimiter, self._of.null
        newline = (self._newline or b"\n").decode()
        pending = ""  # a backslash before the end of a line: the line goes on
        for line in paused(lines, _PIECE):
            if pending:
                line, pending = f"{pending}{newline}{line}", ""
            else:
                self._line += 1
            self._no_stray(line)
            cells: list[str | None]
            if "\\" not in line:
                cells = [None if c == null else c for c in line.split(delimiter)]
            elif line == "\\.":
                self._ended = True
                break
            elif _hides_what_follows(line):
                pending = line
                continue
            else:
                cells = self._cells(line)
            if self._header:
                self._check_header(cells, line)
                continue
            if not line and not self._readers:
                rows.append(())
                continue
            rows.append(self._row(cells, line))
        if pending:
            self._line -= 1
            self._rest = pending.encode() + (self._newline or b"\n") + self._rest
        return rows

    def _cells(self, line: str) -> list[str | None]:
        """Split at delimiters that no backslash hides; NULL is compared before unescaping."""
        raw: list[str] = []
        parts: list[str] = []
        delimiter = self._of.delimiter
        for part in paused(line.split(delimiter), _PIECE):
            parts.append(part)
            if not _hides_what_follows(part):
                raw.append(delimiter.join(parts))
                parts = []
        if parts:
            raw.append(delimiter.join(parts))
        null = self._of.null
        return [None if c == null else self._unescaped(c) if "\\" in c else c for c in raw]

    def _unescaped(self, cell: str) -> str:
        if not ("\\x" in cell or any(f"\\{digit}" in cell for digit in "01234567")):
            return _replaced(_ESCAPED, _unescape, cell)
        # octal and hexadecimal are bytes, which together may be one character
        raw = _replaced(_ESCAPED, _unescape, cell).encode("utf-8", "surrogateescape")
        try:
            return binary.read_text(raw)
        except SqlError as error:
            error.where = self._where(self._line)
            raise


def _hides_what_follows(text: str) -> bool:
    """Whether its last backslash has nothing after it."""
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


def _replaced(pattern: re.Pattern[str], one: Callable[[re.Match[str]], str], text: str) -> str:
    """`pattern.sub` of a text of any length, with breaks."""
    done = 0

    def counted(found: re.Match[str]) -> str:
        nonlocal done
        done += 1
        if not done % _PIECE:
            pause()
        return one(found)

    return pattern.sub(counted, text)


def _unescape(found: re.Match[str]) -> str:
    octal, digits, other = found.groups()
    if octal or digits:
        byte = int(octal, 8) & 0xFF if octal else int(digits, 16)
        return chr(byte) if byte < 128 else chr(0xDC00 + byte)
    return _NAMED.get(other, other or "\\")


def _second(found: re.Match[str]) -> str:
    return found[0][1]


class _CsvReader(_Lines):
    """Records: lines, joined while a quote is open."""

    _stray = "unquoted"

    def __init__(
        self, of: CopyFormat, fields: Sequence[Field], style: Style, piece_bytes_max: int
    ) -> None:
        super().__init__(of, fields, style, piece_bytes_max)
        quote, escape = re.escape(of.quote), re.escape(of.escape)
        doubled = f"{escape}[{quote}{escape}]"
        # nothing is tried twice: what is remembered for that takes many times the memory of a value
        delimiter, single = re.escape(of.delimiter), "" if quote == escape else f"|{escape}"
        inside = f"(?:[^{quote}{escape}]++|{doubled}{single})*+"
        self._field = re.compile(
            rf"((?:[^{quote}{delimiter}]++|{quote}{inside}{quote})*+)({delimiter}|$)", re.DOTALL
        )
        self._part = re.compile(f"{quote}({inside}){quote}", re.DOTALL)
        self._doubled = re.compile(f"{escape}([{quote}{escape}])")
        self._inside = re.compile(inside, re.DOTALL)
        inner = f"[^{quote}]" if quote == escape else f"(?:[^{quote}{escape}]++|{escape}.)"
        outside = f"[^{quote}\r\n]*+"
        line = f"{outside}(?:{quote}{inner}*+{quote}{outside})*+"
        self._first_line = re.compile(line.encode(), re.DOTALL)
        self._begun = StringIO(newline="")  # of a record whose quote is open
        self._is_open = False
        self._begun_chars = 0
        self._force_null = [name in of.force_null for name in self._names]
        self._force_not_null = [name in of.force_not_null for name in self._names]
        self._escape = of.quote
        if of.force_null or of.force_not_null or len(fields) == 1:  # where `\.` may end it
            self._convert = []

    @property
    def _between_rows(self) -> bool:
        return not self._begun_chars

    @property
    def unread(self) -> int:
        return super().unread + self._begun_chars

    def _rows(self, lines: list[str]) -> list[Row]:
        rows: list[Row] = []
        quote = self._of.quote
        plain = not self._of.force_null and not self._of.force_not_null
        null, delimiter = self._of.null, self._of.delimiter
        newline = (self._newline or b"\n").decode()
        for line in paused(lines, _PIECE):
            self._line += 1
            cells: list[str | None]
            if not self._begun_chars and quote not in line:
                self._no_stray(line)
                if line == "\\.":
                    self._ended = True
                    break
                if plain:
                    cells = [None if c == null else c for c in line.split(delimiter)]
                else:
                    cells = self._cells(line)
            else:
                self._begin(line, newline)
                if self._is_open:
                    continue
                line = self._begun.getvalue()
                self._begun, self._begun_chars = StringIO(newline=""), 0
                self._no_stray(line)
                cells = self._cells(line)
            if self._header:
                self._check_header(cells, line)
                continue
            rows.append(self._row(cells, line))
        return rows

    def _begin(self, line: str, newline: str) -> None:
        """Another line of a record; whether its quote is open then."""
        if self._begun_chars:
            self._begun_chars += self._begun.write(newline)
        self._begun_chars += self._begun.write(line)
        if self._begun_chars > self._piece_bytes_max:
            self._keep(b" " * (self._piece_bytes_max + 1))
        if self._of.escape == self._of.quote:
            self._is_open ^= line.count(self._of.quote) % 2 == 1
            return
        at = 0
        while at < len(line):
            if self._is_open:
                found = self._inside.match(line, at)
                assert found is not None, "it may be empty"
                at = found.end()
            else:
                at = line.find(self._of.quote, at)
            if not 0 <= at < len(line):
                return
            self._is_open = not self._is_open
            at += 1

    def _over(self) -> None:
        if self._begun_chars and not self._ended:
            raise self._bad("unterminated CSV quoted field", self._begun.getvalue())

    def _cells(self, line: str) -> list[str | None]:
        cells: list[str | None] = []
        at = 0
        while True:
            found = self._field.match(line, at)
            if found is None:
                raise self._bad("unterminated CSV quoted field", line)
            cells.append(self._cell(found[1], len(cells)))
            if not found[2]:
                return cells
            at = found.end()

    def _cell(self, raw: str, column: int) -> str | None:
        quoted = self._of.quote in raw
        value = _replaced(self._part, self._unquote, raw) if quoted else raw
        if value != self._of.null:
            return value
        known = column < len(self._names)
        if quoted:
            return None if known and self._force_null[column] else value
        return value if known and self._force_not_null[column] else None

    def _unquote(self, found: re.Match[str]) -> str:
        quote, inner = self._of.quote, found[1]
        if self._of.escape == quote:
            return inner.replace(quote + quote, quote)
        return _replaced(self._doubled, _second, inner)


# -- in: binary


class _BinaryReader:
    def __init__(self, of: CopyFormat, fields: Sequence[Field], piece_bytes_max: int) -> None:
        self._of = of
        self._names = [field.name for field in fields]
        self._readers = [
            fitting(binary.reader(field.oid), fit)
            for field, fit in zip(fields, of.fits or (None,) * len(fields), strict=True)
        ]
        self._quick = quick_rows(tuple(field.oid for field in fields), of.fits)
        self._piece_bytes_max = piece_bytes_max
        self._rest = b""
        self._begun = False
        self._ended = False
        self._line = 0

    def feed(self, data: bytes) -> list[Row]:
        data = self._rest + data if self._rest else data
        at = 0
        rows: list[Row] = []
        if not self._begun:
            at = self._header(data)
        while self._begun and not self._ended:
            before = len(rows)
            at = self._quick(data, at, rows)
            self._line += len(rows) - before
            row, at = self._row(data, at)  # the last one, or what is not as usual
            if row is None:
                break
            rows.append(row)
        self._rest = b"" if self._ended else data[at:]
        if len(self._rest) > self._piece_bytes_max:
            raise SqlError(
                LIMIT_EXCEEDED, f"a row of a COPY has more than {self._piece_bytes_max} bytes"
            )
        return rows

    def feed_many(self, data: bytes) -> list[Row]:
        return self.feed(data)

    @property
    def unread(self) -> int:
        return len(self._rest)

    def finish(self) -> list[Row]:
        if not self._begun:
            raise self._bad("COPY file signature not recognized", line=False)
        if self._rest and not self._ended:
            self._line += 1
            raise self._bad("unexpected EOF in COPY data")
        return []

    def _header(self, data: bytes) -> int:
        """Where the rows begin, once the header is complete."""
        if data[: len(SIGNATURE)] != SIGNATURE[: len(data)]:
            raise self._bad("COPY file signature not recognized", line=False)
        if len(data) < len(HEADER):
            return 0
        flags, extension = _EXTENSION.unpack_from(data, len(SIGNATURE))
        if flags & _HAS_OIDS:
            raise self._bad("invalid COPY file header (WITH OIDS)", line=False)
        if flags & _CRITICAL:
            raise self._bad("unrecognized critical flags in COPY file header", line=False)
        if extension > self._piece_bytes_max:
            raise self._bad("invalid COPY file header (wrong length)", line=False)
        if len(data) < len(HEADER) + extension:
            return 0
        self._begun = True
        return len(HEADER) + int(extension)

    def _row(self, data: bytes, start: int) -> tuple[Row | None, int]:
        """The row at `start` and where the next one begins; None: it is not complete."""
        if len(data) - start < 2:
            return None, start
        count = _I2.unpack_from(data, start)[0]
        if count == -1:
            self._ended = True
            return None, start + 2
        self._line += 1
        if count != len(self._readers):
            raise self._bad(f"row field count is {count}, expected {len(self._readers)}")
        at = start + 2
        raws: list[bytes | None] = []
        for _ in range(count):
            if len(data) - at < 4:
                return self._incomplete(start)
            size = _I4.unpack_from(data, at)[0]
            at += 4
            if size == -1:
                raws.append(None)
                continue
            if size < 0:
                raise self._bad("invalid field size")
            if len(data) - at < size:
                return self._incomplete(start)
            raws.append(data[at : at + size])
            at += size
        return self._values(raws), at

    def _incomplete(self, start: int) -> tuple[None, int]:
        self._line -= 1
        return None, start

    def _values(self, raws: list[bytes | None]) -> Row:
        column = 0
        values = []
        try:
            for column, raw in enumerate(raws):
                values.append(None if raw is None else self._readers[column](raw))
        except SqlError as error:
            error.where = f"COPY {self._of.table}, line {self._line}, column {self._names[column]}"
            raise
        return tuple(values)

    def _bad(self, message: str, *, line: bool = True) -> SqlError:
        where = f"COPY {self._of.table}, line {self._line}" if line else ""
        return SqlError(BAD_COPY_FORMAT, message, where=where)
