"""A list of msgpack each of whose places has a meaning of its own: a message of the wire, the
arguments of a request, a result, a stored record. Whoever declares it says what is where: the
verb of a request (kv/base/verbs.py), whose checks ran before anybody reads its row, or the code
that writes the record. So nobody asks again for types.
"""

from __future__ import annotations

from typing import Any, TypeAlias

WireRow: TypeAlias = list[Any]
