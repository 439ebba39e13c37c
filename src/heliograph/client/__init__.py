"""The client's side of a link: the session machine, its subscriptions and its inbox."""
