"""What runs on one device tell of a program: what its shards make up, and by what."""
