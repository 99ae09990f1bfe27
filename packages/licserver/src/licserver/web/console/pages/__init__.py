"""The pages, a module each: plain functions of a `PageContext` that call `services`."""
