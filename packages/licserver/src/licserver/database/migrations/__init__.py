"""The steps from one schema to the next, run by `licserver db upgrade`.

A new one: change `tables`, and write the step by hand into `versions/` after the pattern of the last one; its
file name begins with its revision. Tests compare the result of all steps with `tables`, on both engines.
SQLite changes a table only within `op.batch_alter_table`.
"""
