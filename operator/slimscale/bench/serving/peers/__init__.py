"""Servers of other projects, run by the interpreter of an environment of their own.

Nothing here is imported by the benchmark: each file is a program, and imports only what its requirements
text beside it lists.
"""
