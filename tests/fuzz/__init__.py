"""Bad bytes by the thousand; the broker must go on serving."""
