"""The broker: links, access, sessions and the way from a publication to its subscribers."""
