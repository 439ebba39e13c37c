"""What a session does with stores: reliable publications, durable subscriptions, replays and batches."""
