"""Metered uses: consume, give back, and report later what could not be reported."""
