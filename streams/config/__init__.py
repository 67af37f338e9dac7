"""Settings, and the TOML file of streams."""
