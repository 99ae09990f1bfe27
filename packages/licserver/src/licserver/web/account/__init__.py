"""The customer's page at `/account`: their licenses and computers, in the vendor's name (D-214)."""
