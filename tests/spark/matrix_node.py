"""Loaded by the nodes of the kill matrix as a module of procedures: leases that a run lives to see
end. No test imports it: it would change the limits of all tests of its process.
"""

from __future__ import annotations

from kv.base import limits
from kvorum import upkeep
from tests.spark.matrix_lease import LEASE_MS

limits.SINK_LEASE_MS = LEASE_MS  # type: ignore[misc]
limits.SINK_EXPIRED_MS = 2 * LEASE_MS  # type: ignore[misc]
upkeep._REAP_INTERVAL_S = 2.0  # type: ignore[misc]
