"""The format of shard folders: features, manifest, checksums, questions and candidates."""
