"""From a subject to its verdict: planned, observed, judged, confirmed."""
