"""What Heliograph claims, as tests; one folder per room, and folders for what crosses rooms."""
