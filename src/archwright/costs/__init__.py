"""What a network costs on a device."""
