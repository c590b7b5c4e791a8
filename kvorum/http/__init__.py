"""The HTTP API of DESIGN 12: bare-ASGI hot routes in front of FastAPI, metrics, and the
client that speaks it.
"""
