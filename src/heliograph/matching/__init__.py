"""Which subscriptions want a publication: one room per subscription language."""
