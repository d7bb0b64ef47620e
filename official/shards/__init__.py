"""The format of shard folders on disk: features, manifest, questions and candidates."""
