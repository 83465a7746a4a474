"""Holds a run against what must be true of every one."""
