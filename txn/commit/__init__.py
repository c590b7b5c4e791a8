"""The commit: a machine that decides, a shell that performs, and the messages between them and the
partitions.
"""
