"""One client's session and what all sessions share.

sessions      opens them: databases, roles (`sqlproxy.answers.Sessions`)
session       statements, portals, the transaction around them, cancellation
prepared      bound statements and their plans, remembered for all sessions
dispatch      which portal a statement gets
running       queries and changes: fast (sqlproxy.tables) or through DuckDB (sqlproxy.analytic)
commands      BEGIN … COMMIT, SET, PREPARE, cursors;  roles: CREATE ROLE and its like
definitions   DDL as procedures;  alterations: ALTER TABLE
block         the transaction block;  settings: SET and SHOW;  environment: what expressions ask
"""
