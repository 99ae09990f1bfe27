"""Trials: start the one of this computer."""
