"""A place for files: a directory of this machine; a store that pyarrow.fs knows (STORES); or what
fsspec finds behind any other URL (kvorum.transfer.fsspec_places). All calls block: make them in a
thread.

A file appears whole or not at all: a local one is written beside its name, synced and renamed;
object stores do that by themselves. Names are relative, parts joined by "/".
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from kv.base.errors import InvalidArgument, NotFound, Unavailable
from kvorum.local.extras import needed

LOCAL_SCHEME: Final = "file"
STORES: Final = frozenset({"s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss"})
"""Schemes of stores that every node sees, with credentials of its own."""
_WITH_PORTS: Final = frozenset({"hdfs", "viewfs", "webhdfs", "swebhdfs", "http", "https"})
"""Schemes whose URLs have a port more often than a password: host:8020/a@b has none."""
_SECRETS: Final = re.compile(
    r"pass|secret|token|credentials?$|access_?key|account_?key|signature|^sig$|^sas$"
)
_REFUSED: Final = re.compile(
    "Bucket '.*' not found|NO_SUCH_BUCKET|ACCESS_DENIED|INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN"
    "|SIGNATURE_DOES_NOT_MATCH|UNRECOGNIZED_CLIENT"
)
T = TypeVar("T")


class Found(NamedTuple):
    """A file: its size, and when it was changed, in ns since 1970 (0: the store does not say)."""

    name: str
    size: int
    changed_ns: int


class Place(Protocol):
    """See the module."""

    @property
    def uri(self) -> str: ...

    def read(self, name: str) -> bytes:
        """Raises NotFound (FILE_NOT_FOUND), Unavailable."""
        ...

    def write(self, name: str, data: bytes) -> None: ...

    def names(self) -> list[str]:
        """Every file, in order; [] where there is nothing."""
        ...

    def files(self) -> list[Found]:
        """The same, with what tells that one was changed."""
        ...

    def found(self, name: str) -> Found:
        """One of them, without the others. Raises NotFound, Unavailable."""
        ...

    def remove(self, name: str) -> None:
        """Fine if it is not there."""
        ...

    def open(self, name: str) -> BinaryIO:
        """For reading from its beginning. Raises NotFound, Unavailable."""
        ...


def is_local(target: str) -> bool:
    """Whether it names something of one machine: a path, or a file:// URI."""
    return "://" not in target or target.startswith(f"{LOCAL_SCHEME}://")


def scheme_of(target: str) -> str:
    """s3 of s3://…; "" of a path."""
    scheme, found, _ = target.partition("://")
    return scheme.lower() if found else ""


def is_own(target: str) -> bool:
    """Whether the process of a command reads and writes there, unless told to let the nodes: its
    user's files, and what its user's credentials open.
    """
    return scheme_of(target) not in STORES


def local_path(target: str) -> str:
    """The absolute path of a local target."""
    if "://" in target:
        parts = urlsplit(target)
        if parts.netloc not in ("", "localhost"):
            raise InvalidArgument(
                f"{target!r}: file:// takes an absolute path of this machine (file:///path)"
            )
        target = unquote(parts.path)
    if not target:
        raise InvalidArgument("the path is empty")
    return os.path.abspath(os.path.expanduser(target))


def uri_of(target: str) -> str:
    """As other processes understand it: a path of this machine becomes a file:// URI."""
    return Path(local_path(target)).as_uri() if is_local(target) else target


def check_no_keys(target: str) -> None:
    """Keys of an object store would be kept in clear in the procedure's arguments, its history and
    every backup. Raises InvalidArgument, which does not repeat them.
    """
    scheme, found, rest = target.partition("://")
    if not found or is_local(target):
        return
    # Not everybody quotes a slash in a secret: whatever stands before an @ counts, but host:port/
    # where that is usual.
    user, at, _ = rest.partition("@")
    host, slash, _ = user.partition("/")
    port = bool(slash) and host.rpartition(":")[2].isdigit()
    ported = scheme.lower().removeprefix("fsspec+") in _WITH_PORTS
    keys = bool(at) and ":" in user and not (port and ported)
    query = re.split("[?&#]", rest.partition("?")[2])
    options = [unquote(option.partition("=")[0]).lower() for option in query]
    if keys or any(_SECRETS.search(option) for option in options):
        raise InvalidArgument(
            f"the {scheme}:// place has keys in it, which would be kept in the procedure's record:"
            " leave them out, and give them to the process that reads and writes there (the"
            " nodes): AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or the role of the"
            " machine"
        )


def place_of(target: str) -> Place:
    """Raises InvalidArgument."""
    if is_local(target):
        return Directory(Path(local_path(target)))
    if scheme_of(target) in STORES:
        return Remote(target)
    from kvorum.transfer.fsspec_places import Elsewhere

    return Elsewhere(target)


class Directory:
    """A directory of this machine."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def uri(self) -> str:
        return str(self._path)

    def read(self, name: str) -> bytes:
        return told(lambda: (self._path / name).read_bytes(), self._path / name)

    def write(self, name: str, data: bytes) -> None:
        told(lambda: self._write(self._path / name, data), self._path / name)

    @staticmethod
    def _write(path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.new")
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def names(self) -> list[str]:
        return [found.name for found in self.files()]

    def files(self) -> list[Found]:
        if self._path.is_file():
            return [told(lambda: self._found(self._path, ""), self._path)]
        return told(self._files, self._path)

    def _files(self) -> list[Found]:
        found = []
        for path in sorted(path for path in self._path.rglob("*") if path.is_file()):
            if not path.name.startswith("."):
                with suppress(FileNotFoundError):  # removed meanwhile, as claims are
                    found.append(self._found(path, path.relative_to(self._path).as_posix()))
        return found

    def found(self, name: str) -> Found:
        return told(lambda: self._found(self._path / name, name), self._path / name)

    @staticmethod
    def _found(path: Path, name: str) -> Found:
        told = path.stat()
        return Found(name, told.st_size, told.st_mtime_ns)

    def remove(self, name: str) -> None:
        told(lambda: (self._path / name).unlink(missing_ok=True), self._path / name)

    def open(self, name: str) -> BinaryIO:
        return told(lambda: (self._path / name).open("rb"), self._path / name)


class Remote:
    """A prefix of a store that pyarrow.fs knows."""

    def __init__(self, uri: str) -> None:
        arrow, fs = needed("pyarrow"), needed("pyarrow.fs")
        self._uri = uri.rstrip("/")
        try:
            self._fs, self._path = fs.FileSystem.from_uri(self._uri)
        except (arrow.ArrowException, OSError, ValueError, ImportError) as error:
            raise InvalidArgument(f"{uri}: pyarrow cannot open it ({error})") from error
        self._selector: Any = fs.FileSelector
        self._types: Any = fs.FileType

    @property
    def uri(self) -> str:
        return self._uri

    def _at(self, name: str) -> str:
        return f"{self._path.rstrip('/')}/{name}" if name else self._path

    def read(self, name: str) -> bytes:
        def read() -> bytes:
            with self._fs.open_input_stream(self._at(name), compression=None) as stream:
                return bytes(stream.read())

        return told(read, self._at(name))

    def write(self, name: str, data: bytes) -> None:
        def write() -> None:
            parent = self._at(name).rpartition("/")[0]
            self._fs.create_dir(parent, recursive=True)
            with self._fs.open_output_stream(self._at(name), compression=None) as stream:
                stream.write(data)

        told(write, self._at(name))

    def names(self) -> list[str]:
        return [found.name for found in self.files()]

    def files(self) -> list[Found]:
        def look() -> list[Found]:
            (here,) = self._fs.get_file_info([self._path])
            if here.type == self._types.File:
                return [Found("", here.size or 0, here.mtime_ns or 0)]
            chosen = self._selector(self._path, allow_not_found=True, recursive=True)
            base = self._path.rstrip("/") + "/"
            found = [
                Found(info.path.removeprefix(base), info.size or 0, info.mtime_ns or 0)
                for info in self._fs.get_file_info(chosen)
                if info.type == self._types.File
            ]
            return sorted(one for one in found if not one.name.rpartition("/")[2].startswith("."))

        return told(look, self._path)

    def found(self, name: str) -> Found:
        def look() -> Found:
            (here,) = self._fs.get_file_info([self._at(name)])
            if here.type != self._types.File:
                raise FileNotFoundError(self._at(name))
            return Found(name, here.size or 0, here.mtime_ns or 0)

        return told(look, self._at(name))

    def remove(self, name: str) -> None:
        def remove() -> None:
            (here,) = self._fs.get_file_info([self._at(name)])
            if here.type == self._types.File:
                self._fs.delete_file(self._at(name))

        told(remove, self._at(name))

    def open(self, name: str) -> BinaryIO:
        opened: BinaryIO = told(lambda: self._fs.open_input_file(self._at(name)), self._at(name))
        return opened


def told(do: Callable[[], T], where: object) -> T:
    """What `do` returns; an error of the system in our words. A full or absent disk may come back,
    and so may a store that does not answer: it is tried again. One that refuses is not.
    """
    try:
        return do()
    except FileNotFoundError as error:
        raise NotFound(
            f"there is no file {where}", code="FILE_NOT_FOUND", details={"file": str(where)}
        ) from error
    except (IsADirectoryError, NotADirectoryError, PermissionError) as error:
        raise InvalidArgument(f"{where}: {error.strerror or error}") from error
    except OSError as error:
        if _REFUSED.search(str(error)):
            raise InvalidArgument(f"{where}: the store refuses: {error}") from error
        raise Unavailable(
            f"{where}: {error.strerror or error}; it is tried again", code="PLACE_UNAVAILABLE"
        ) from error
