"""The layers of encoders and heads."""
