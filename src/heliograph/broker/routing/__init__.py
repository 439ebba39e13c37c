"""Where a publication goes next, and whether it was here before."""
