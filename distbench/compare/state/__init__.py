"""State beside its variables: what leads it, and what replicas have of it together."""
