"""The backend that asks a node over HTTP."""
