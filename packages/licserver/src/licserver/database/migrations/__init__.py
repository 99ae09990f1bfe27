"""The steps from one schema to the next, run by `licserver db upgrade`.

A new one: change `tables`, and write the step by hand into `versions/`; its file name begins with its
revision. A nullable column is `op.add_column`, a table `op.create_table` (0026). Other changes of a table
need `op.batch_alter_table` on SQLite, which recreates it. Tests compare the result of all steps
with `tables`, on both engines. No step leads back: a backup does.

0025 is the first: the steps before it were never released, and are one with it.
"""
