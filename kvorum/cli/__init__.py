"""The `kvorum` command. Every command imports what it needs when it runs, so that
`kvorum get` starts fast.
"""
