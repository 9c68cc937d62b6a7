"""What a task is before it trains: devices, joining, failures, collectives."""
