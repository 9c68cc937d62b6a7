"""Which observed value is held against which expected one, with which margin."""
