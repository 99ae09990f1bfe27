"""What several of these suites play with."""
