"""Reads and writes of everything that a vendor manages: plain SQLAlchemy, one file a subject."""
