"""The encoders: a module with a class `Encoder` for each type of the config."""
