"""Topic discovery: creating, finding and protecting topics."""
