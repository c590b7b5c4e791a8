"""Partitions are split and merged: when, where, and how."""
