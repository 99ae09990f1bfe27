"""Client mode: a scripted service on loopback, and a client that is run against it as a program."""
