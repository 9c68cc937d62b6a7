"""One small agent for each task, on whatever host an engine chose for it."""
