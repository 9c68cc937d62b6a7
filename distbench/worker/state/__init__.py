"""The state of a subject: its variables, found, named, read, set and cut."""
