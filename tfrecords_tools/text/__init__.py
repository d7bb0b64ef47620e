"""Plain text: documents, sentences and the flags that describe them."""
