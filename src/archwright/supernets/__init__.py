"""Weight sharing: one network that holds every architecture of a space."""
