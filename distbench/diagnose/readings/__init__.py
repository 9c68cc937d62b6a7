"""What an evidence is held against, and what comes of each of these."""
