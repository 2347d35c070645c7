"""Studies that explain architectures."""
