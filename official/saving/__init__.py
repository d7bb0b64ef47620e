"""What a model folder holds: checkpoints, records of the run, config and tokenizer."""

# The rules of beam search for lengths and scores: see `official.serving.generation.beam_search`.
LENGTH_RULES = ("t5", "huggingface")
