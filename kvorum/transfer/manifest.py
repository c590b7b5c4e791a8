"""What makes files a backup: `manifest.json`, written last. Without it there is none.

begun.json     {id}   whose files these are, from the first moment on
manifest.json  as `Manifest`, and `seal`: SHA-256 of the rest as canonical JSON. Of an encrypted
               backup {kind, format: 2, id, key: its key's id, sealed: that, encrypted, in base64}
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import asdict, dataclass, fields
from typing import Final

from kv.base.errors import Corruption, NotFound, Refused
from kvorum.transfer import claims
from kvorum.transfer.places import Place
from kvorum.transfer.sealing import Files, Key
from procedures.engine.plain_data import Plain

MANIFEST: Final = "manifest.json"
BEGUN: Final = "begun.json"
KIND: Final = "kvorum-backup"
FORMAT: Final = 1
SEALED: Final = 2


@dataclass(frozen=True, slots=True)
class Manifest:
    """`at`: the timestamp of everything in it. `size`: bytes of keys and values. `last`: SHA-256 of
    the last file, in hex. `procedures_top`: no procedure in it has a higher id. `tables`: names,
    for people.
    """

    id: str
    cluster: str
    at: int
    taken_ms: int
    version: str
    files: int
    rows: int
    size: int
    last: str
    procedures_top: int
    tables: tuple[str, ...]
    kind: str = KIND
    format: int = FORMAT

    def encode(self) -> bytes:
        plain = _plain(asdict(self))
        return json.dumps({**plain, "seal": _seal(plain)}, indent=1).encode() + b"\n"


def _plain(row: Plain) -> dict[str, object]:
    return {**row, "at": str(row["at"]), "tables": list(row["tables"])}


def _seal(plain: dict[str, object]) -> str:
    canonical = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def write(files: Files, made: Manifest) -> None:
    """With it the files are a backup."""
    data = made.encode()
    if files.key is not None:
        sealed = base64.b64encode(files.key.seal(made.id, MANIFEST, data)).decode()
        row = {"kind": KIND, "format": SEALED, "id": made.id, "key": files.key.id, "sealed": sealed}
        data = json.dumps(row, indent=1).encode() + b"\n"
    files.place.write(MANIFEST, data)


def read(place: Place, key: Key | None = None) -> tuple[Manifest, Files]:
    """What it says, and its files. Raises NotFound (NO_BACKUP), Corruption, Refused (KEY_NEEDED,
    WRONG_KEY).
    """
    try:
        data = place.read(MANIFEST)
    except NotFound as error:
        begun = "one was begun there and not finished" if BEGUN in place.names() else "nothing is"
        raise NotFound(
            f"there is no backup in {place.uri}: it has no {MANIFEST} ({begun})", code="NO_BACKUP"
        ) from error
    try:
        row = json.loads(data)
        if row.get("kind") == KIND and row.get("format") == SEALED:
            key = key_for(place, str(row["key"]), key)
            sealed = base64.b64decode(row["sealed"], validate=True)
            row = json.loads(key.open(str(row["id"]), MANIFEST, sealed, place.uri))
        else:
            key = None
        seal = row.pop("seal")
        if row.get("kind") != KIND or row.get("format") != FORMAT:
            raise ValueError(f"it is {row.get('kind')!r:.40} of format {row.get('format')!r:.20}")
        if _seal(row) != seal:
            raise ValueError("its seal is wrong: it was changed")
        row |= {"at": int(row["at"]), "tables": tuple(row["tables"])}
        made = Manifest(**{field.name: row[field.name] for field in fields(Manifest)})
        return made, Files(place, made.id, key)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Corruption(
            f"{place.uri}/{MANIFEST} cannot be read: {error}; use another backup"
        ) from error


def key_for(place: Place, id: str, key: Key | None) -> Key:
    if key is None:
        raise Refused(
            f"the backup in {place.uri} is encrypted with the key {id}: give its file to whoever"
            " reads it (the command: --key-file FILE; nodes: their setting backup_key_file)",
            code="KEY_NEEDED",
            details={"key": id},
        )
    if key.id != id:
        raise Refused(
            f"the backup in {place.uri} is encrypted with the key {id}, and this is the key"
            f" {key.id}: give the file of the former",
            code="WRONG_KEY",
            details={"key": id, "given": key.id},
        )
    return key


def begin(place: Place, id: str, *, looks: int = 1) -> bool:
    """Take an empty place for this backup; again: no change. False: look again (claims.py). Raises
    Refused (TARGET_IN_USE).
    """
    if not _mine(place, id):
        if (others := _whose(place)) is not None:
            raise Refused(
                f"{place.uri} {others}; a backup wants a place of its own",
                code="TARGET_IN_USE",
                details={"target": place.uri},
            )
        if not claims.take(place, id, "a backup", looks=looks):
            return False
        place.write(BEGUN, json.dumps({"id": id}).encode())
    claims.release(place, id)
    return True


def _whose(place: Place) -> str | None:
    """The backup that has the place; None: none has."""
    try:
        id = str(json.loads(place.read(BEGUN))["id"])
        procedure = int(id.rpartition("-")[2], 16)
    except (NotFound, ValueError, TypeError, KeyError):
        return None
    if MANIFEST in place.names():
        return "holds a backup already"
    return (
        f"holds one that was begun and not finished, procedure {procedure}: --resume {procedure}"
        f" goes on with it; if it has ended (kvorum proc show {procedure}), empty the directory"
    )


def _mine(place: Place, id: str) -> bool:
    try:
        return bool(json.loads(place.read(BEGUN)).get("id") == id)
    except (NotFound, ValueError, AttributeError):
        return False


def clear(place: Place, id: str) -> None:
    """Remove what this backup has written; of another one nothing."""
    claims.release(place, id)
    if not _mine(place, id):
        return
    for name in place.names():
        if name.startswith("data/") or name == MANIFEST:
            place.remove(name)
    place.remove(BEGUN)
