"""Servers of an earlier version and of this one in one cluster."""
