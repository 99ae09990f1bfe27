"""The benchmark: licserver beside a bare aiohttp handler, in one run, as a ratio."""
