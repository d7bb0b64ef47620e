"""Speed and memory, side by side with the references, each in an environment of its own."""
