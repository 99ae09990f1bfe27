"""The steps from one schema to the next, run by `licserver db upgrade`.

A new one: change `tables`, write the step by hand into `versions/` after the pattern of the last one, and
append its revision to `schema.REVISIONS`. Tests compare what the steps make with what `tables` says, on both
engines. SQLite changes a table only within `op.batch_alter_table`.
"""
