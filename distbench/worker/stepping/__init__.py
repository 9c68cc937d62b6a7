"""A subject that is built and run step by step."""
