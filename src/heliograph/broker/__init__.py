"""The broker: links, access, sessions and the path from a publication to its subscribers."""
