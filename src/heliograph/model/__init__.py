"""What travels and who sends it: frozen values, with no behaviour beyond answering questions about themselves."""
