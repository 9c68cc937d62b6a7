"""What leads state, what replicas have of it together, and its noise."""
