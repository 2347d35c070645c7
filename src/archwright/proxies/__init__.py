"""Training-free metrics: networks scored at initialisation, one by one or tens at a time."""
