"""Between a step's phases: intermediate values, pieces and micro-steps."""
