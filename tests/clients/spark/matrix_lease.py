"""How long the leases of the kill matrix are."""

LEASE_MS = 8_000
