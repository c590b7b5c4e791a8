"""How strong a row lock is: PostgreSQL's four, and which of them two transactions may have on one
key.

UPDATE and NO_KEY_UPDATE are intents, of which a key has one; SHARE and KEY_SHARE are guards, of
which it has any number. What is written counts as locked: a put changes no key, so it is like
NO_KEY_UPDATE, and a delete like UPDATE.

Source: PostgreSQL's documentation, table 13.3.
"""

from __future__ import annotations

from typing import Final

UPDATE: Final = 0
NO_KEY_UPDATE: Final = 1
SHARE: Final = 2
KEY_SHARE: Final = 3
STRENGTHS: Final = {
    "update": UPDATE,
    "no key update": NO_KEY_UPDATE,
    "share": SHARE,
    "key share": KEY_SHARE,
}

EXCLUDED: Final = {
    UPDATE: frozenset({UPDATE, NO_KEY_UPDATE, SHARE, KEY_SHARE}),
    NO_KEY_UPDATE: frozenset({UPDATE, NO_KEY_UPDATE, SHARE}),
    SHARE: frozenset({UPDATE, NO_KEY_UPDATE}),
    KEY_SHARE: frozenset({UPDATE}),
}
"""What others may not have beside each."""


def is_shared(strength: int) -> bool:
    return strength >= SHARE
