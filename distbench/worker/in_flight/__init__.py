"""Steps in flight: planned, flown and followed."""
