"""A place for files: a directory of this machine; a store that pyarrow.fs knows (STORES); or what
fsspec finds at any other URL: sftp://, ftp://, https://, webhdfs://, fsspec+s3://, … All calls
block: make them in a thread.

A file appears whole or not at all: a local one is written beside its name, synced and renamed;
object stores do that by themselves. Names are relative, parts joined by "/".

fsspec itself and what the protocol needs (s3fs, paramiko, aiohttp) are installed by whoever uses
them; an error names what is missing. Of its stores those that put whole objects get a file in one
call. In others a file is written beside its name and renamed (where a rename does not replace what
is there, that goes first). Listings are always asked for anew, since claims rest on them
(docs/decisions/1141).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Protocol, TypeVar

from kv.base.errors import InvalidArgument, KvorumError, NotFound, Unavailable
from kvorum.local.extras import needed
from kvorum.transfer.targets import FSSPEC_PREFIX, STORES, is_local, local_path, scheme_of

_REFUSED: Final = re.compile(
    "Bucket '.*' not found|NO_SUCH_BUCKET|ACCESS_DENIED|INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN"
    "|SIGNATURE_DOES_NOT_MATCH|UNRECOGNIZED_CLIENT"
)
_ONE_CALL: Final = frozenset(
    ("memory", "http", "https", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "hf")
)
"""Protocols that put a whole object; or, as http, write nothing at all."""
_TIMES: Final = (
    "mtime",
    "LastModified",
    "last_modified",
    "updated",
    "modified",
    "modify",
    "created",
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
        """The same, with what shows that one was changed."""
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


def place_of(target: str) -> Place:
    """Raises InvalidArgument."""
    if is_local(target):
        return Directory(Path(local_path(target)))
    if scheme_of(target) in STORES:
        return Remote(target)
    return FsspecPlace(target)


class Directory:
    """A directory of this machine."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def uri(self) -> str:
        return str(self._path)

    def read(self, name: str) -> bytes:
        return guarded(lambda: (self._path / name).read_bytes(), self._path / name)

    def write(self, name: str, data: bytes) -> None:
        guarded(lambda: self._write(self._path / name, data), self._path / name)

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
            return [guarded(lambda: self._found(self._path, ""), self._path)]
        return guarded(self._files, self._path)

    def _files(self) -> list[Found]:
        found = []
        for path in sorted(path for path in self._path.rglob("*") if path.is_file()):
            if not path.name.startswith("."):
                with suppress(FileNotFoundError):  # removed meanwhile, as claims are
                    found.append(self._found(path, path.relative_to(self._path).as_posix()))
        return found

    def found(self, name: str) -> Found:
        return guarded(lambda: self._found(self._path / name, name), self._path / name)

    @staticmethod
    def _found(path: Path, name: str) -> Found:
        stat = path.stat()
        return Found(name, stat.st_size, stat.st_mtime_ns)

    def remove(self, name: str) -> None:
        guarded(lambda: (self._path / name).unlink(missing_ok=True), self._path / name)

    def open(self, name: str) -> BinaryIO:
        return guarded(lambda: (self._path / name).open("rb"), self._path / name)


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

        return guarded(read, self._at(name))

    def write(self, name: str, data: bytes) -> None:
        def write() -> None:
            parent = self._at(name).rpartition("/")[0]
            self._fs.create_dir(parent, recursive=True)
            with self._fs.open_output_stream(self._at(name), compression=None) as stream:
                stream.write(data)

        guarded(write, self._at(name))

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

        return guarded(look, self._path)

    def found(self, name: str) -> Found:
        def look() -> Found:
            (here,) = self._fs.get_file_info([self._at(name)])
            if here.type != self._types.File:
                raise FileNotFoundError(self._at(name))
            return Found(name, here.size or 0, here.mtime_ns or 0)

        return guarded(look, self._at(name))

    def remove(self, name: str) -> None:
        def remove() -> None:
            (here,) = self._fs.get_file_info([self._at(name)])
            if here.type == self._types.File:
                self._fs.delete_file(self._at(name))

        guarded(remove, self._at(name))

    def open(self, name: str) -> BinaryIO:
        opened: BinaryIO = guarded(lambda: self._fs.open_input_file(self._at(name)), self._at(name))
        return opened


class FsspecPlace:
    """Whatever fsspec opens."""

    def __init__(self, uri: str) -> None:
        """Raises InvalidArgument."""
        core = needed("fsspec.core")
        self._uri = uri.rstrip("/")
        try:
            self._fs, path = core.url_to_fs(self._uri.removeprefix(FSSPEC_PREFIX))
        except (ImportError, ValueError, TypeError) as error:
            raise InvalidArgument(f"{uri}: fsspec cannot open it: {error}") from error
        except Exception as error:
            raise InvalidArgument(f"{uri}: it does not answer: {error}") from error
        self._path = path.rstrip("/")
        protocol = self._fs.protocol
        names = {protocol} if isinstance(protocol, str) else set(protocol)
        self._one_call = bool(names & _ONE_CALL)

    @property
    def uri(self) -> str:
        return self._uri

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}" if name else self._path

    def read(self, name: str) -> bytes:
        return self._guarded(lambda: bytes(self._fs.cat_file(self._at(name))), name)

    def write(self, name: str, data: bytes) -> None:
        self._guarded(lambda: self._write(self._at(name), data), name)

    def _write(self, path: str, data: bytes) -> None:
        parent, _, last = path.rpartition("/")
        self._fs.makedirs(parent, exist_ok=True)
        if self._one_call:
            self._fs.pipe_file(path, data)
            return
        draft = f"{parent}/.{last}.new"
        self._fs.pipe_file(draft, data)
        try:
            self._fs.mv(draft, path)
        except Exception:
            if not self._is_there(path):
                raise
        if self._is_there(draft):  # it does not replace what is there; WebHDFS does not even say so
            self._fs.rm_file(path)
            self._fs.mv(draft, path)

    def _is_there(self, path: str) -> bool:
        """Not `exists`, which takes every error for no."""
        self._fs.invalidate_cache()
        try:
            self._fs.info(path)
        except FileNotFoundError:
            return False
        return True

    def names(self) -> list[str]:
        return [found.name for found in self.files()]

    def files(self) -> list[Found]:
        def look() -> list[Found]:
            self._fs.invalidate_cache()
            try:
                here = self._fs.info(self._path)
            except FileNotFoundError:
                return []
            if here["type"] == "file":
                return [_found("", here)]
            base = self._path + "/"
            found = [
                _found(path.removeprefix(base), info)
                for path, info in self._fs.find(self._path, detail=True).items()
                if info["type"] == "file" and path.startswith(base)
            ]
            return sorted(one for one in found if not one.name.rpartition("/")[2].startswith("."))

        return self._guarded(look, "")

    def found(self, name: str) -> Found:
        def look() -> Found:
            self._fs.invalidate_cache()
            here = self._fs.info(self._at(name))
            if here["type"] != "file":
                raise FileNotFoundError(self._at(name))
            return _found(name, here)

        return self._guarded(look, name)

    def remove(self, name: str) -> None:
        def remove() -> None:
            self._fs.invalidate_cache()
            if self._fs.isfile(self._at(name)):
                self._fs.rm_file(self._at(name))

        self._guarded(remove, name)

    def open(self, name: str) -> BinaryIO:
        opened: BinaryIO = self._guarded(lambda: self._fs.open(self._at(name), "rb"), name)
        return opened

    def _guarded(self, do: Callable[[], T], name: str) -> T:
        """Libraries below fsspec have errors of their own: what is no OSError is one here."""

        def as_system_error() -> T:
            try:
                return do()
            except (OSError, KvorumError):
                raise
            except NotImplementedError as error:
                raise InvalidArgument(
                    f"{self._uri}: the store cannot do that (is it only for reading?)"
                ) from error
            except Exception as error:
                raise OSError(f"{type(error).__name__}: {error}") from error

        return guarded(as_system_error, f"{self._uri}/{name}".rstrip("/"))


def guarded(do: Callable[[], T], where: object) -> T:
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


def _found(name: str, info: Mapping[str, Any]) -> Found:
    changed = next((info[key] for key in _TIMES if info.get(key) is not None), None)
    return Found(name, int(info.get("size") or 0), _nanoseconds(changed))


def _nanoseconds(changed: Any) -> int:
    """0: unknown."""
    if isinstance(changed, str):
        try:
            changed = datetime.fromisoformat(changed)
        except ValueError:
            return 0
    if isinstance(changed, datetime):
        if changed.tzinfo is None:
            changed = changed.replace(tzinfo=UTC)
        changed = changed.timestamp()
    return int(changed * 1_000_000_000) if isinstance(changed, int | float) else 0
