"""Builds the earlier command, which takes longer than a test may, and says where it is."""

from .earlier import command

print(command())
