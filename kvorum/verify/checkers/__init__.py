"""One checker per file: a pure function of a `History` that returns the anomalies in it.

A checker says nothing about what the history does not show: it can prove that a promise was broken,
never that it will be kept.
"""
