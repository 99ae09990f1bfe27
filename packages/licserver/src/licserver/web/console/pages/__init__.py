"""The pages, a room each: plain functions of a `PageContext`, which ask `vendor` and choose what is shown."""
