"""Models over HTTP: what `garden serve` starts.

Needs the extra `serve`. HTTP, validation and the description of the interface (OpenAPI) are
FastAPI's, on uvicorn. What is here is what a model needs: requests that share batches
(`joining`), and what may be asked of a model (`operations`).
"""

MAX_BYTES = 1_000_000  # of the body of a request
