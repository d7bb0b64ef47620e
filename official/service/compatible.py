"""The interfaces of others for vectors and ranking, so that their clients work.

* `POST /v1/embeddings` and `GET /v1/models`, as OpenAI's API describes them;
* `POST /embed`, `POST /embed_sparse`, `POST /rerank` and `GET /info`, as
  text-embeddings-inference has them.

Texts longer than the model reads are cut, as everywhere here.
"""

import base64
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field
from scipy import special

from official.service.operations import Embed, EmbedSparse

Inputs = str | Annotated[list[str], Field(min_length=1)]


class OpenAIEmbeddings(BaseModel):
    """The body of `POST /v1/embeddings`. Fields that are not known are for other servers."""

    input: Inputs
    model: str = Field(default="", description="Any name: this server has one model.")
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(default=None, ge=1)

    def operation(self) -> Embed:
        """Returns the same request to this server."""
        return Embed(texts=_listed(self.input), size=self.dimensions)

    def response(self, vectors: np.ndarray, model: str, tokens: int) -> dict[str, Any]:
        """Returns the content of the response."""
        data = [
            {"object": "embedding", "index": index, "embedding": self._encoded(vector)}
            for index, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": model, "usage": usage}

    def _encoded(self, vector: np.ndarray) -> str | list[float]:
        if self.encoding_format == "base64":
            return base64.b64encode(vector.astype("<f4").tobytes()).decode()
        return vector.tolist()


class TEIEmbed(BaseModel):
    """The body of `POST /embed`."""

    inputs: Inputs
    normalize: bool = True
    truncate: Literal[True] | None = Field(
        default=None, description="Longer texts are cut; another rule is not supported."
    )
    prompt_name: str | None = None
    dimensions: int | None = Field(default=None, ge=1)

    def operation(self) -> Embed:
        """Returns the same request to this server."""
        return Embed(
            texts=_listed(self.inputs),
            prompt=self.prompt_name,
            normalize=self.normalize,
            size=self.dimensions,
        )


class TEIEmbedSparse(BaseModel):
    """The body of `POST /embed_sparse`."""

    inputs: Inputs
    truncate: Literal[True] | None = None
    prompt_name: str | None = None

    def operation(self) -> EmbedSparse:
        """Returns the same request to this server."""
        return EmbedSparse(texts=_listed(self.inputs), prompt=self.prompt_name)

    def response(self, results: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[Any]:
        """Returns the words of each text by their ids, in the order of these."""
        return [
            [{"index": i, "value": x} for i, x in zip(ids.tolist(), weights.tolist(), strict=True)]
            for ids, weights in results
        ]


class TEIRerank(BaseModel):
    """The body of `POST /rerank`."""

    query: str
    texts: Annotated[list[str], Field(min_length=1)]
    raw_scores: bool = Field(default=False, description="Not between 0 and 1.")
    return_text: bool = False
    truncate: Literal[True] | None = None

    def response(self, scores: Sequence[float]) -> list[dict[str, Any]]:
        """Returns the ranks, the best first."""
        values = np.asarray(scores, np.float64)
        shown = values if self.raw_scores else special.expit(values)
        order = np.argsort(-values, kind="stable")
        return [
            {
                "index": int(i),
                "score": float(shown[i]),
                **({"text": self.texts[i]} if self.return_text else {}),
            }
            for i in order
        ]


def _listed(inputs: Inputs) -> list[str]:
    return [inputs] if isinstance(inputs, str) else inputs
