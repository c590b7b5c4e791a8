"""The master's work on partitions. In this issue: making and removing them on the one node there
is.
"""
