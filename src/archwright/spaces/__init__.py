"""What can be built: search spaces, their architectures and their networks."""
