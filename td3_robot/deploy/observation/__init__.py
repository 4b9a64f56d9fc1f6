"""What a policy observes, worked out from an arm's state."""
