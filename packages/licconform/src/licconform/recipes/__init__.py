"""Seed commands for servers: scripts to run, or to copy and change."""
