"""Where a step is looked at: taps, what they keep, and what is put in there."""
