"""The HTTP API (docs/reference/http.md): bare-ASGI hot routes in front of FastAPI, metrics, and
the client that speaks it.
"""
