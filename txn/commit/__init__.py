"""The commit: a machine that decides, a shell that performs, and the messages between them and the
partitions.

    coordinator   so many at a time of one client; it begins a shell for each
    shell         one commit: performs effects, feeds events back, answers the caller
    core          decides (pure); effects: the words between the two
    sending       the messages of one commit
    finishing     the ends of all commits, many in one message
    trace         what a commit cost
"""
