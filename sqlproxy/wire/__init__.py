"""PostgreSQL's protocol v3: bytes of a client ↔ calls of a Session (`seam`).

server.py ─ accepts, limits, cancels, stops
  └─ connection.py ─ one client's socket: in, out, back-pressure, deadlines
       ├─ codec.py         bytes ↔ messages (pure)
       ├─ startup.py       from the first packet to the first ReadyForQuery; scram.py (pure)
       └─ conversation.py  queries, prepared statements, portals; copying.py: COPY
            └─ compiled.py, rows.py   row encoders, parameter readers: per statement (pure)
"""
