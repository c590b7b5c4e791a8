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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from errno import EINVAL, ELOOP
from pathlib import Path
from stat import S_ISREG
from typing import Any, BinaryIO, Final, NamedTuple, Protocol, TypeVar

from kv.base.config_values import STORES
from kv.base.errors import InvalidArgument, KvorumError, NotFound, Unavailable
from kvorum.local.extras import needed
from kvorum.transfer.targets import FSSPEC_PREFIX, is_local, local_path, scheme_of

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
_PATH: Final = getattr(os, "O_PATH", os.O_RDONLY)
"""A directory that may be passed, if not listed."""
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


def place_of(target: str, *, trusted: bool = True) -> Place:
    """`trusted` False: for somebody else than who owns this process. Raises InvalidArgument."""
    if is_local(target):
        return Directory(Path(local_path(target)), links=trusted)
    if scheme_of(target) in STORES:
        return Remote(target)
    return FsspecPlace(target, redirects=trusted)


class Directory:
    """A directory of this machine. `links` False: links in its path and in it are not followed, so
    that nobody who can make one there reads or writes what only this process may.
    """

    def __init__(self, path: Path, *, links: bool = True) -> None:
        self._path = path
        self._flags = os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW)

    @property
    def uri(self) -> str:
        return str(self._path)

    @contextmanager
    def _folder(self, name: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """A descriptor of the directory that a file is in, and its name there. `make`: what is
        missing of it.
        """
        *parts, last = (self._path / name).parts
        at = os.open(parts[0], os.O_DIRECTORY | _PATH | os.O_CLOEXEC)
        try:
            for part in parts[1:]:
                inner = self._entered(at, part, make)
                os.close(at)
                at = inner
            yield at, last
        finally:
            os.close(at)

    def _entered(self, at: int, part: str, make: bool) -> int:
        flags = os.O_DIRECTORY | _PATH | self._flags
        try:
            return os.open(part, flags, dir_fd=at)
        except FileNotFoundError:
            if not make:
                raise
        with suppress(FileExistsError):
            os.mkdir(part, dir_fd=at)
        return os.open(part, flags, dir_fd=at)

    def read(self, name: str) -> bytes:
        with self.open(name) as file:
            return guarded(file.read, self._path / name)

    def write(self, name: str, data: bytes) -> None:
        guarded(lambda: self._write(name, data), self._path / name)

    def _write(self, name: str, data: bytes) -> None:
        with self._folder(name, make=True) as (at, last):
            draft = f".{last}.new"
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | self._flags
            with os.fdopen(os.open(draft, flags, 0o666, dir_fd=at), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, last, src_dir_fd=at, dst_dir_fd=at)
            descriptor = os.open(".", os.O_RDONLY | os.O_CLOEXEC, dir_fd=at)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def names(self) -> list[str]:
        return [found.name for found in self.files()]

    def files(self) -> list[Found]:
        return guarded(self._files, self._path)

    def _files(self) -> list[Found]:
        try:
            here = self._stat("")
        except FileNotFoundError:
            return []
        if S_ISREG(here.st_mode):
            return [_file("", here)]
        found = []
        for path in sorted(self._path.rglob("*")):
            name = path.relative_to(self._path).as_posix()
            if not path.name.startswith("."):
                with suppress(FileNotFoundError):  # removed meanwhile, as claims are
                    if S_ISREG((stat := self._stat(name)).st_mode):
                        found.append(_file(name, stat))
        return found

    def _stat(self, name: str) -> os.stat_result:
        follow = not self._flags & os.O_NOFOLLOW
        with self._folder(name) as (at, last):
            return os.stat(last, dir_fd=at, follow_symlinks=follow)

    def found(self, name: str) -> Found:
        return guarded(lambda: _file(name, self._stat(name)), self._path / name)

    def remove(self, name: str) -> None:
        def remove() -> None:
            with suppress(FileNotFoundError), self._folder(name) as (at, last):
                os.unlink(last, dir_fd=at)

        guarded(remove, self._path / name)

    def open(self, name: str) -> BinaryIO:
        return guarded(lambda: self._open(name), self._path / name)

    def _open(self, name: str) -> BinaryIO:
        with self._folder(name) as (at, last):  # a pipe would be waited for
            file = os.fdopen(os.open(last, os.O_NONBLOCK | self._flags, dir_fd=at), "rb")
        if not S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise PermissionError(EINVAL, "it is no file")
        return file


def _file(name: str, stat: os.stat_result) -> Found:
    return Found(name, stat.st_size, stat.st_mtime_ns)


class Remote:
    """A prefix of a store that pyarrow.fs knows."""

    def __init__(self, uri: str) -> None:
        arrow, fs = needed("pyarrow"), needed("pyarrow.fs")
        self._uri = uri.rstrip("/")
        try:
            self._fs, self._path = fs.FileSystem.from_uri(self._uri)
        except (arrow.ArrowException, OSError, ValueError, ImportError) as error:
            raise InvalidArgument(f"{uri}: pyarrow cannot open it ({error})") from error
        # Listings of some stores have milliseconds, what they say of one object never has.
        self._step_ns = 1_000_000_000 if self._fs.type_name == "s3" else 1
        self._selector: Any = fs.FileSelector
        self._types: Any = fs.FileType

    @property
    def uri(self) -> str:
        return self._uri

    def _at(self, name: str) -> str:
        return f"{self._path.rstrip('/')}/{name}" if name else self._path

    def _told(self, name: str, info: Any) -> Found:
        changed_ns = info.mtime_ns or 0
        return Found(name, info.size or 0, changed_ns - changed_ns % self._step_ns)

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
                return [self._told("", here)]
            chosen = self._selector(self._path, allow_not_found=True, recursive=True)
            base = self._path.rstrip("/") + "/"
            found = [
                self._told(info.path.removeprefix(base), info)
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
            return self._told(name, here)

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

    def __init__(self, uri: str, *, redirects: bool = True) -> None:
        """`redirects`: of HTTP, to wherever its server says. Raises InvalidArgument."""
        core = needed("fsspec.core")
        self._uri = uri.rstrip("/")
        url = self._uri.removeprefix(FSSPEC_PREFIX)
        more: dict[str, Any] = {}
        if not redirects and scheme_of(url) in ("http", "https"):
            more["get_client"] = _without_redirects
        try:
            self._fs, path = core.url_to_fs(url, **more)
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


async def _without_redirects(**options: object) -> object:
    """A session of HTTP that goes nowhere but where it is sent."""
    http = needed("fsspec.implementations.http").aiohttp  # of its own sessions

    async def refuse(_session: object, _context: object, redirect: Any) -> None:
        to = redirect.response.headers.get("Location", "")
        raise PermissionError(f"it sends to another place, {to:.200}")

    trace = http.TraceConfig()
    trace.on_request_redirect.append(refuse)
    return http.ClientSession(trace_configs=[trace], **options)


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
        if error.errno == ELOOP:
            raise InvalidArgument(f"{where}: a link, which nodes do not follow there") from error
        if _REFUSED.search(str(error)):
            raise InvalidArgument(f"{where}: the store refuses: {error}") from error
        raise Unavailable(
            f"{where}: {error.strerror or error}; it is tried again", code="PLACE_UNAVAILABLE"
        ) from error


def _found(name: str, info: Mapping[str, Any]) -> Found:
    changed = next((info[key] for key in _TIMES if info.get(key) is not None), None)
    return Found(name, int(info.get("size") or 0), _nanoseconds(changed))


def _nanoseconds(changed: object) -> int:
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
