"""An object store on the loopback, as far as pyarrow's client of S3 asks: buckets, objects, ranges,
listings, and uploads in parts. Credentials are not looked at.

    with ObjectStore() as store:
        place_of(store.uri("a/prefix"))          s3://bucket/a/prefix?endpoint_override=…

Signed chunks (Content-Encoding: aws-chunked) are taken apart, their signatures passed over.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

BUCKET: Final = "bucket"
_XML: Final = '<?xml version="1.0" encoding="UTF-8"?>'


class Object(NamedTuple):
    data: bytes
    changed: datetime

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data, usedforsecurity=False).hexdigest()}"'


class ObjectStore:
    """See the module. `objects` by key; one bucket."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.began, self.puts = datetime.now(UTC), 0
        self.uploads: dict[str, dict[int, bytes]] = {}
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.store = self
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def uri(self, prefix: str) -> str:
        where = f"127.0.0.1:{self._server.server_address[1]}"
        return f"s3://{BUCKET}/{quote(prefix)}?endpoint_override={where}&scheme=http&region=here"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    store: ObjectStore


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing is written."""

    def setup(self) -> None:
        super().setup()
        self._store = self.server.store

    # ------------------------------------------------------------------------------- requests

    def do_HEAD(self) -> None:
        self._get(b"")

    def do_GET(self) -> None:
        key, query = self._asked()
        if key:
            self._get(None)
        elif "uploads" in query:
            self._answer(200, f"{_XML}<ListMultipartUploadsResult/>".encode())
        else:
            self._answer(200, self._listing(query).encode())

    def _get(self, body: bytes | None) -> None:
        key, _ = self._asked()
        if not key:
            self._answer(200, b"")
            return
        found = self._store.objects.get(key)
        if found is None:
            self._refuse(404, "NoSuchKey")
            return
        data, status, said = found.data, 200, {}
        if (wanted := self.headers.get("Range")) is not None:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, end = int(first), min(int(last or len(data)), len(data) - 1)
            if start >= len(data):
                self._refuse(416, "InvalidRange")
                return
            said["Content-Range"] = f"bytes {start}-{end}/{len(data)}"
            data, status = data[start : end + 1], 206
        said |= {
            "ETag": found.etag,
            "Last-Modified": format_datetime(found.changed, usegmt=True),
            "Accept-Ranges": "bytes",
        }
        self._answer(status, data, said, shown=body is None)

    def do_PUT(self) -> None:
        (key, query), data = self._asked(), self._body()
        if "uploadId" in query:
            self._store.uploads[query["uploadId"]][int(query["partNumber"])] = data
            self._answer(200, b"", {"ETag": Object(data, datetime.now(UTC)).etag})
        else:
            self._answer(200, b"", {"ETag": self._put(key, data)})

    def do_POST(self) -> None:
        (key, query), body = self._asked(), self._body()
        if "delete" in query:
            for one in ElementTree.fromstring(body).iter():
                if one.tag.rpartition("}")[2] == "Key":
                    self._store.objects.pop(one.text or "", None)
            self._answer(200, f"{_XML}<DeleteResult/>".encode())
        elif "uploads" in query:
            upload = f"u{len(self._store.uploads)}"
            self._store.uploads[upload] = {}
            said = f"<Bucket>{BUCKET}</Bucket><Key>{escape(key)}</Key><UploadId>{upload}</UploadId>"
            tag = "InitiateMultipartUploadResult"
            self._answer(200, f"{_XML}<{tag}>{said}</{tag}>".encode())
        else:
            parts = self._store.uploads.pop(query["uploadId"])
            etag = self._put(key, b"".join(parts[number] for number in sorted(parts)))
            said = f"<Key>{escape(key)}</Key><ETag>{escape(etag)}</ETag>"
            tag = "CompleteMultipartUploadResult"
            self._answer(200, f"{_XML}<{tag}>{said}</{tag}>".encode())

    def do_DELETE(self) -> None:
        key, query = self._asked()
        if "uploadId" in query:
            self._store.uploads.pop(query["uploadId"], None)
        else:
            self._store.objects.pop(key, None)
        self._answer(204, b"")

    # ------------------------------------------------------------------------------------ how

    def _asked(self) -> tuple[str, dict[str, str]]:
        parts = urlsplit(self.path)
        key = unquote(parts.path).removeprefix(f"/{BUCKET}").removeprefix("/")
        query = parse_qs(parts.query, keep_blank_values=True)
        return key, {name: values[0] for name, values in query.items()}

    def _put(self, key: str, data: bytes) -> str:
        # Each a second later than the one before: of one object no store says more.
        self._store.puts += 1
        changed = self._store.began + timedelta(seconds=self._store.puts)
        made = self._store.objects[key] = Object(data, changed)
        return made.etag

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            data = b"".join(_chunks(self.rfile))
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "aws-chunked" in self.headers.get("Content-Encoding", ""):
            return b"".join(_signed(data))
        return data

    def _listing(self, query: dict[str, str]) -> str:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        most, after = int(query.get("max-keys", 1000)), query.get("continuation-token", "")
        rows: dict[str, str] = {}
        for key in sorted(k for k in list(self._store.objects) if k.startswith(prefix)):
            cut = key.find(delimiter, len(prefix)) if delimiter else -1
            if cut >= 0:
                shown = key[: cut + 1]
                rows[shown] = f"<CommonPrefixes><Prefix>{escape(shown)}</Prefix></CommonPrefixes>"
                continue
            found = self._store.objects[key]
            rows[key] = (
                f"<Contents><Key>{escape(key)}</Key><Size>{len(found.data)}</Size>"
                f"<LastModified>{found.changed:%Y-%m-%dT%H:%M:%S.%f}Z</LastModified>"
                f"<ETag>{escape(found.etag)}</ETag></Contents>"
            )
        names = [name for name in rows if name > after]
        page, more = names[:most], len(names) > most
        said = f"<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix>"
        said += f"<KeyCount>{len(page)}</KeyCount><MaxKeys>{most}</MaxKeys>"
        said += f"<IsTruncated>{str(more).lower()}</IsTruncated>"
        if more:
            said += f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>"
        body = "".join(rows[name] for name in page)
        return f"{_XML}<ListBucketResult>{said}{body}</ListBucketResult>"

    def _refuse(self, status: int, code: str) -> None:
        body = f"{_XML}<Error><Code>{code}</Code><Message>{code}</Message></Error>"
        self._answer(status, body.encode(), shown=self.command != "HEAD")

    def _answer(
        self, status: int, body: bytes, said: dict[str, str] | None = None, *, shown: bool = True
    ) -> None:
        self.send_response(status)
        for name, value in (said or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if shown:
            self.wfile.write(body)


def _chunks(file: Any) -> Iterator[bytes]:
    """A body in HTTP's chunks."""
    while size := int(file.readline().partition(b";")[0], 16):
        yield file.read(size)
        file.readline()
    while file.readline().strip():
        pass


def _signed(data: bytes) -> Iterator[bytes]:
    """A body in AWS' chunks, within the other: SIZE;chunk-signature=…"""
    while data:
        head, _, data = data.partition(b"\r\n")
        size = int(head.partition(b";")[0], 16)
        if not size:
            return
        yield data[:size]
        data = data[size + 2 :]
