"""Three well-known samples, each one file: a saga, a transfer that a person approves, a fan-out of
1,000. Each can be killed at any time and started again.
"""
