"""One recorded value: its form, its like, and how far it may lie from another."""
