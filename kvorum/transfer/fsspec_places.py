"""A place behind any URL that fsspec knows: sftp://, ftp://, https://, webhdfs://, fsspec+s3://, …

fsspec itself and what the protocol needs (s3fs, paramiko, aiohttp) are installed by who uses them;
an error names what is missing. Stores that put whole objects get a file in one call. In others a
file is written beside its name and renamed: it appears whole or not at all (where a rename does not
replace what is there, that goes first). Listings are always
asked for anew, since claims rest on them (docs/decisions/1141). All calls block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, BinaryIO, Final, TypeVar

from kv.base.errors import InvalidArgument, KvorumError
from kvorum.local.extras import needed
from kvorum.transfer.places import Found, told

PREFIX: Final = "fsspec+"
_ONE_CALL: Final = frozenset(
    ("memory", "http", "https", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "hf")
)
"""Protocols that put a whole object; or, as http, write nothing at all."""
_TIMES: Final = (
    "mtime", "LastModified", "last_modified", "updated", "modified", "modify", "created"
)  # fmt: skip
T = TypeVar("T")


class Elsewhere:
    """See the module, and kvorum.transfer.places.Place."""

    def __init__(self, uri: str) -> None:
        """Raises InvalidArgument."""
        core = needed("fsspec.core")
        self._uri = uri.rstrip("/")
        try:
            self._fs, path = core.url_to_fs(self._uri.removeprefix(PREFIX))
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
        return self._told(lambda: bytes(self._fs.cat_file(self._at(name))), name)

    def write(self, name: str, data: bytes) -> None:
        self._told(lambda: self._write(self._at(name), data), name)

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

        return self._told(look, "")

    def found(self, name: str) -> Found:
        def look() -> Found:
            self._fs.invalidate_cache()
            here = self._fs.info(self._at(name))
            if here["type"] != "file":
                raise FileNotFoundError(self._at(name))
            return _found(name, here)

        return self._told(look, name)

    def remove(self, name: str) -> None:
        def remove() -> None:
            self._fs.invalidate_cache()
            if self._fs.isfile(self._at(name)):
                self._fs.rm_file(self._at(name))

        self._told(remove, name)

    def open(self, name: str) -> BinaryIO:
        opened: BinaryIO = self._told(lambda: self._fs.open(self._at(name), "rb"), name)
        return opened

    def _told(self, do: Callable[[], T], name: str) -> T:
        """Libraries behind fsspec have errors of their own: what is no OSError is one here."""

        def guarded() -> T:
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

        return told(guarded, f"{self._uri}/{name}".rstrip("/"))


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
