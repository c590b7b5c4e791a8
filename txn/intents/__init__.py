"""Intents of others: resolved, recovered, swept, waited for, or aborted by an id."""
