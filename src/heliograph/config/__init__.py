"""Settings: one typed TOML file, with the environment and a command's options on top."""
