"""What several tests share; none of it is a test. The tests say ``from helpers.x import y``."""
