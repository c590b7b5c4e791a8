"""One client's session: statements in, rows out, and the transaction around them.

    session, sessions    what the wire calls, and who opens them
    dispatch             binds a statement to its values and says what runs it
    explain, commands, definitions, running     who runs it
    preparing            a text → what it is bound to now, with a plan
    state                what a session is and has
    shared               what all sessions of a process share

Each imports only those below it.
"""
