"""The report: one HTML file about the traffic and the network of an archive, with its figures and their SQL."""
