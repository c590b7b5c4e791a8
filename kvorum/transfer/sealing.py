"""Encrypted files of a backup, byte by byte: AES-256-GCM in pieces (the STREAM construction of
Hoang, Reyhanitabar, Rogaway and Vizár, 2015), so that what was changed, cut, put in another order,
renamed or taken from another backup is noticed before anything of it is used.

    "KVE1" [salt, 32 bytes] [piece 0] [piece 1] …     a piece: PIECE_BYTES (the last one: the rest,
                                                      perhaps none) and 16 bytes of tag

    key of the file   HKDF-SHA256 (the backup's key, the salt)
    nonce             [number of the piece u64 BE] 000 [1 of the last one, else 0]
    bound to it       the backup's id, the file's name, and the nonce

The salt is an HMAC of the id, the name and the content: whoever writes a file again writes the same
bytes (backup.py rests on that), and no key of a file is used for two contents.

A key is 32 bytes in a file of its owner, raw or as 64 hexadecimal digits. A backup has its key's id
(a hash), never the key; nobody keeps it beside the files.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from kv.base.errors import Corruption, InvalidArgument
from kvorum.transfer.places import Place

PIECE_BYTES: Final = 1 << 20
MAGIC: Final = b"KVE1"
KEY_BYTES: Final = 32
_SALT: Final = 32
_TAG: Final = 16
_NONCE: Final = Struct(">Q3x?")
_INFO: Final = b"kvorum backup file"


@dataclass(frozen=True, slots=True)
class Key:
    """`id`: tells keys apart, and nothing else."""

    secret: bytes = field(repr=False)

    @property
    def id(self) -> str:
        return hashlib.sha256(b"kvorum backup key" + self.secret).hexdigest()[:16]

    def seal(self, backup: str, name: str, data: bytes) -> bytes:
        """The bytes of a file."""
        where = _bound(backup, name)
        digest = hashlib.sha256(data).digest()
        salt = hmac.digest(self.secret, b"kvorum backup salt" + where + digest, "sha256")
        cipher, size = self._cipher(salt), len(data)
        parts = [MAGIC, salt]
        for number, at in enumerate(range(0, max(size, 1), PIECE_BYTES)):
            nonce = _NONCE.pack(number, at + PIECE_BYTES >= size)
            parts.append(cipher.encrypt(nonce, data[at : at + PIECE_BYTES], where + nonce))
        return b"".join(parts)

    def open(self, backup: str, name: str, data: bytes, uri: str) -> bytes:
        """What was sealed under this name in this backup. Raises Corruption."""
        start = len(MAGIC) + _SALT
        if data[: len(MAGIC)] != MAGIC or len(data) < start + _TAG:
            raise Corruption(f"{uri}/{name} is no whole file of an encrypted backup")
        cipher, where = self._cipher(data[len(MAGIC) : start]), _bound(backup, name)
        parts = []
        for number, at in enumerate(range(start, len(data), PIECE_BYTES + _TAG)):
            nonce = _NONCE.pack(number, at + PIECE_BYTES + _TAG >= len(data))
            piece = data[at : at + PIECE_BYTES + _TAG]
            try:
                parts.append(cipher.decrypt(nonce, piece, where + nonce))
            except InvalidTag as error:
                raise Corruption(
                    f"{uri}/{name} was changed, cut, or put there from another place or backup"
                    f" (in its piece {number}): use another backup"
                ) from error
        return b"".join(parts)

    def _cipher(self, salt: bytes) -> AESGCM:
        return AESGCM(HKDF(SHA256(), KEY_BYTES, salt, _INFO).derive(self.secret))


def _bound(backup: str, name: str) -> bytes:
    parts = [backup.encode(), name.encode()]
    return b"".join(len(part).to_bytes(4) + part for part in parts)


def read_key(path: str) -> Key:
    """Blocks. Raises InvalidArgument, which does not repeat what is in the file."""
    try:
        with Path(path).expanduser().open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(4 * KEY_BYTES)
    except OSError as error:
        raise InvalidArgument(
            f"the key file {path} cannot be read: {error.strerror or error}", code="KEY_UNREADABLE"
        ) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidArgument(
            f"others than its owner may use the key file {path}: chmod 600 {path}",
            code="KEY_UNREADABLE",
        )
    if len(data) == KEY_BYTES:
        return Key(data)
    if re.fullmatch(rb"\s*[0-9A-Fa-f]{64}\s*", data):
        return Key(bytes.fromhex(data.decode()))
    raise InvalidArgument(
        f"the key file {path} has no key: {KEY_BYTES} bytes, or {2 * KEY_BYTES} hexadecimal digits"
        f" (umask 077; openssl rand -hex {KEY_BYTES} > {path})",
        code="KEY_UNREADABLE",
    )


def check_apart(path: str, place: Place) -> None:
    """A key that lies beside what it opens protects nothing. Raises InvalidArgument."""
    folder, key = os.path.realpath(place.uri), os.path.realpath(os.path.expanduser(path))
    if place.uri.startswith("/") and os.path.commonpath((folder, key)) == folder:
        raise InvalidArgument(
            f"the key file {path} lies in the backup's own place {place.uri}: keep it elsewhere"
        )


@dataclass(frozen=True, slots=True)
class Files:
    """The files of one backup, by their names; `key` None: they are as they are."""

    place: Place
    backup: str
    key: Key | None

    def write(self, name: str, data: bytes) -> None:
        """See Place."""
        sealed = data if self.key is None else self.key.seal(self.backup, name, data)
        self.place.write(name, sealed)

    def read(self, name: str) -> bytes:
        """See Place. Raises Corruption, too."""
        data = self.place.read(name)
        if self.key is None:
            return data
        return self.key.open(self.backup, name, data, self.place.uri)
