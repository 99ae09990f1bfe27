"""The steps from one schema to the next, run by `licserver db upgrade`.

A new one: change `tables`, then write the step by hand or let Alembic propose it (CONTRIBUTING.md says
how), and append its revision to `schema.REVISIONS`. Tests compare what the steps make with what `tables`
says, on both engines.
"""
