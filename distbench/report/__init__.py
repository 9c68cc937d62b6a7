"""Writes verdicts for people and programs; computes nothing."""
