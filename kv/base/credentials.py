"""What a client proves by who it is: given by its caller, or found in its environment.

    KVORUM_TOKEN, KVORUM_TOKEN_FILE              an API token, or the file that holds it
    KVORUM_USER, KVORUM_PASSWORD_FILE            a user's name, and the file that holds its password
    KVORUM_CLUSTER_SECRET                        of a proxy: it acts for others, as a node does

Secrets come in no flag, and are shown by nothing: not by `repr`, not by an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kv.base.errors import InvalidArgument

SECRET_BYTES_MAX: Final = 1_024


@dataclass(frozen=True, slots=True)
class Credential:
    """One of: a token; a user with a password; the cluster's secret; nothing, which is whoever a
    certificate names, or somebody on this machine.
    """

    token: str = field(default="", repr=False)
    user: str = ""
    password: str = field(default="", repr=False)
    secret: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        """Raises InvalidArgument."""
        for name in ("token", "user", "password"):
            value = getattr(self, name)
            if type(value) is not str or len(value.encode()) > SECRET_BYTES_MAX:
                raise InvalidArgument(
                    f"a {name} is text of at most {SECRET_BYTES_MAX} bytes",
                    details={"setting": name, "limit": SECRET_BYTES_MAX},
                )
        if self.token and (self.user or self.password):
            raise InvalidArgument(
                "give a token, or a user and a password: not both", details={"setting": "token"}
            )
        if bool(self.user) != bool(self.password):
            raise InvalidArgument(
                "a user logs in with a password: give both", details={"setting": "user"}
            )


NONE: Final = Credential()


def from_environment(environment: Mapping[str, str]) -> Credential:
    """Raises InvalidArgument: two at once, or a file that cannot be read."""
    token = environment.get("KVORUM_TOKEN", "")
    if name := environment.get("KVORUM_TOKEN_FILE", ""):
        if token:
            raise InvalidArgument(
                "KVORUM_TOKEN and KVORUM_TOKEN_FILE are both set: unset one",
                details={"setting": "KVORUM_TOKEN"},
            )
        token = from_file(name, "KVORUM_TOKEN_FILE")
    user, named = environment.get("KVORUM_USER", ""), environment.get("KVORUM_PASSWORD_FILE", "")
    if not (user and named):
        return Credential(token=token)
    return Credential(token, user, from_file(named, "KVORUM_PASSWORD_FILE"))


def of_proxy(environment: Mapping[str, str]) -> Credential:
    """Of a process that acts for others. Raises InvalidArgument."""
    secret = environment.get("KVORUM_CLUSTER_SECRET", "")
    return Credential(secret=secret.encode()) if secret else from_environment(environment)


def from_file(path: str, setting: str) -> str:
    """Without the line's end. Raises InvalidArgument, which says the path and never the content."""
    try:
        with Path(path).expanduser().open("rb") as file:
            found = file.read(SECRET_BYTES_MAX + 2).decode().strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise InvalidArgument(
            f"{setting}: {path} cannot be read: {why}", details={"setting": setting}
        ) from error
    if not found or len(found.encode()) > SECRET_BYTES_MAX:
        raise InvalidArgument(
            f"{setting}: {path} is empty or has more than {SECRET_BYTES_MAX} bytes",
            details={"setting": setting},
        )
    return found
