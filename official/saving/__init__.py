"""What a model folder holds: checkpoints, records of the run, config and tokenizer."""
