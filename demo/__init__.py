"""The main job, end to end: 336,776 real flights through Spark into transactional tables, while
things are killed.
"""
