"""The single-device run, and what follows from it."""
