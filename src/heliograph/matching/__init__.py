"""Which subscriptions match a publication; one file per subscription language."""
