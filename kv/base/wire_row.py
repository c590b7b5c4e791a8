"""A list of the wire each of whose places has a meaning of its own: a message, the arguments of a
request, a result. The declaration of the verb says what is where (kv/base/verbs.py); its checks
ran before anybody reads one, so nobody asks again for types.
"""

from __future__ import annotations

from typing import Any, TypeAlias

WireRow: TypeAlias = list[Any]
