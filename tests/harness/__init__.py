"""What the cross-package tests share: the vectors as objects, a vendor to play with, a real server."""
