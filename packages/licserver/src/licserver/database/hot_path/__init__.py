"""Lookups and activations of the public endpoints, batched."""
