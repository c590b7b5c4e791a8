"""The outside world of the samples: a bank, agencies and files behind one SQLite file, as services
behind HTTP would be. A request with a key that was served before gets its first answer again.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

FILE = Path("outside.db")
DONE = "create table if not exists done (id integer primary key, key unique, what)"
SERVE = "insert or ignore into done (key, what) values (?, ?)"


def ask(key: str, what: str) -> str:
    """Has `what` done once for `key`; which of all that was done it is."""
    with closing(sqlite3.connect(FILE, timeout=30)) as db, db:
        db.execute("begin immediate")
        db.execute(DONE)
        db.execute(SERVE, [key, what])
        (number,) = db.execute("select id from done where key = ?", [key]).fetchone()
        return f"{what} #{number}"


def done() -> list[str]:
    """All that was done, in order."""
    with closing(sqlite3.connect(FILE, timeout=30)) as db:
        db.execute(DONE)
        return [what for (what,) in db.execute("select what from done order by id")]
