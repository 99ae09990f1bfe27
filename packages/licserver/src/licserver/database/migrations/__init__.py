"""The steps from one schema to the next, run by `licserver db upgrade`.

A new one: change `tables`, and write the step by hand into `versions/`; its file name begins with its
revision. A nullable column is `op.add_column`, a table `op.create_table` (0026). Other changes of a table
need `op.batch_alter_table` on SQLite, which recreates it. Tests compare the result of all steps
with `tables`, on both engines.

Servers go on while a step runs on PostgreSQL, and those of the release before go on with its result (D-250).
So a step only adds, and declares `oldest_program`, the schema of the oldest program that works on it. New
columns of existing tables are nullable or have a default of the server; what takes long is done by `online`.
What no program needs any more is taken away by a step of the release after. `downgrade` leads back by one.

0025 is the first: the steps before it were never released, and are one with it.
"""
