"""Search methods, one file each."""
