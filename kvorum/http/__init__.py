"""The HTTP API (docs/reference/http.md): what serves it, and the client that speaks it."""
