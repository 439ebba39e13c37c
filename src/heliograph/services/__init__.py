"""Services: machines joined to a broker by a pipe."""
