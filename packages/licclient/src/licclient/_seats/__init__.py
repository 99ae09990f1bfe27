"""Floating seats: take, renew, release."""
