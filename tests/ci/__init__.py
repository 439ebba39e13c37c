"""What a build server runs, and how it judges a test that fails once and then passes."""
