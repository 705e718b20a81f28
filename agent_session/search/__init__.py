"""Searching a tree of files, in a process that does nothing else.

The rule: nothing here imports more than the standard library and, where there are ignore rules, `pathspec`, so that
the process starts in a few hundredths of a second. `tools.searching` starts it.
"""
