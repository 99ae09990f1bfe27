"""The pages, a room each: plain functions of a `Visit`, which ask `vendor` and choose what is shown."""
