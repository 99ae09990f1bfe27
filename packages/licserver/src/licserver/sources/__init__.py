"""Events of shops, as deliveries to `POST /events/in/NAME`: verified, read, and what follows from them. Pure.

Each kind of shop is one module with the interface `Shop`. `state` decides what an event changes.
"""
