"""Keep an arm safe: limit joints, plan stops, watch the clock."""
