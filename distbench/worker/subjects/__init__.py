"""What users bring, each made into a train program."""
