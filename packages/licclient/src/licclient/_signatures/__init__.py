"""Ed25519 signatures of responses and releases, checked with the keys that an app pins (extra `signed`)."""
