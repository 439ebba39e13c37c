"""Topic directories, and entities that create, find, grant and use topics, as scenarios list them."""
