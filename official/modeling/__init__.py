"""The network: masks, layers, encoders, objectives with their heads, and the model."""
