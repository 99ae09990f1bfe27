"""Records and decisions: pure functions of values and `now`."""
