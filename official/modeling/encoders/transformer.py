"""The transformer encoder of BERT, RoBERTa, ALBERT, ELECTRA, DeBERTa, GPT-2 and ModernBERT.

Shapes: B batch, T query length, S key length, N heads, H head size, D hidden, K pooled positions,
P positions that are read, L layers (depths: a block that is shared counts at each depth where it
runs).
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from keras import ops
from typing_extensions import override

from official.modeling import masks
from official.modeling.encoders import base
from official.modeling.encoders.inputs import check_ranks
from official.modeling.layers import schemes
from official.modeling.layers.activation import POOLER_ACTIVATIONS
from official.modeling.layers.block import Block, BlockOutput, adapter_weights
from official.modeling.layers.convolution import TokenConvolution
from official.modeling.layers.embeddings import Embeddings
from official.modeling.layers.kernels import take_positions
from official.modeling.layers.linear import Linear
from official.modeling.layers.local_attention import Blocks
from official.modeling.layers.norm import make_norm
from official.modeling.layers.random import Draws, Initializers, RandomWeights
from official.modeling.layers.recompute import recomputed
from official.modeling.layers.schemes import Rows
from official.modeling.types import Size, Tensor
from official.utils.errors import UserError

_SHORT = 2  # rows of up to this many windows are not cut into blocks by local layers


class Encoder(base.Encoder, saved_as="TransformerEncoder"):
    """Embeddings, transformer blocks and a pooler.

    Call arguments beside those of `base.Encoder`, of which `positions` are below `max_positions`
    and `attention_mask` is broadcastable to [B, N, T, S] with a cache:
        cache: the result of `empty_cache`, or the cache that an earlier call returned. The
            positions attended to are then the S slots of the cache.
        slot: int or scalar tensor, the slot of the first of these tokens. Earlier calls filled the
            slots before it.
        part_ids: int [B, T], the part of each token: see `takes_parts`.
        read_positions: int [B, P], the positions of the last layer that are computed, beside those
            that are pooled. `sequence_output` is then [B, P, D]. None = all. There is no
            `output_all` and no cache with it.
        read_offsets: [B, P, D], vectors that are added to the inputs of the last layer at
            `read_positions`. The last layer then runs twice, the second time with its own outputs
            as the queries, and both times with its inputs as keys and values: the enhanced mask
            decoder (He et al. 2021, section 3.2; DeBERTa's release). None = none. There is no
            pooled output then.

    Layers with local attention take time linear in T, if the row is longer than a few windows, and
    `attention_mask` is the same for all queries of a row. With `output_all`, they compute all
    weights, including those outside the window, which are 0.

    A call returns the outputs of `base.Encoder`, and
        `attention_parts` with `output_all`: L records `Attended`, with scores, queries, keys and
            values beside the weights;
        `cache` with `cache`: the cache with these tokens.

    A call raises UserError if the sequence is longer than `max_positions`, if a rank is wrong,
    or if there is a cache and the encoder is not causal.
    """

    reads_positions = True  # see `official.modeling.encoders.inputs`
    takes_parts = True

    def __init__(self, config, *, seed=0, name="encoder", shared=None, dtype=None):
        """Describes an encoder; `build()` creates its variables.

        Args:
            config: `TransformerConfig` with a vocabulary size.
            seed: initial weights are a function of it and of the name.
            name: first part of the variables' paths.
            shared: layers of another encoder's embeddings to share: see `Embeddings`.
            dtype: Keras dtype policy; None = the global one.
        """
        super().__init__(config, name=name, dtype=dtype)
        draws = Draws.of_name(seed, name)

        def weights(stddev):
            return RandomWeights(config.initializer, stddev, draws)

        kernels = weights(config.initializer_range)
        size, dtype = config.hidden_size, self.dtype_policy
        names = block_names(config.num_layers, config.layer_groups, config.inner_layers)
        self.embeddings = Embeddings(
            config.embeddings,
            Initializers(kernels, position=weights(config.position_range)),
            name="embeddings",
            shared=shared,
            dtype=dtype,
        )
        residual = config.initializer_range
        if config.scale_residual_init:
            residual *= 1 / math.sqrt(2 * len(names))
        initializers = Initializers(
            kernels, residual=weights(residual), adapter=adapter_weights(seed, name)
        )
        self.parts = config.block()
        blocks = {
            each: Block(config.block(each == names[0]), initializers, name=each, dtype=dtype)
            for each in dict.fromkeys(names)
        }
        self.blocks = list(blocks.values())
        self.depths = [self.blocks.index(blocks[name]) for name in names]
        self.final_norm = None
        if config.norm == "pre":
            self.final_norm = make_norm(config.norms, size, name="final_norm", dtype=dtype)
        self.schemes = schemes.of(self.parts)
        made = [scheme.of_encoder(self, kernels) for scheme in self.schemes]
        self.of_schemes = schemes.attach(self, made)
        if config.convolution is not None:
            self.convolution = TokenConvolution(
                size,
                config.convolution.kernel_size,
                activation=config.convolution.activation,
                dropout=config.dropout,
                epsilon=config.norm_epsilon,
                initializer=kernels,
                name="convolution",
                dtype=dtype,
            )
        if config.pooler:
            self.pooler = Linear(size, size, initializer=kernels, name="pooler", dtype=dtype)

    @override
    def build(self, input_shape=None):
        of_schemes = [getattr(self, name) for name in self.of_schemes]
        others = (*of_schemes, self.convolution, self.final_norm, self.pooler)
        for layer in (self.embeddings, *self.blocks, *others):
            if layer is not None:
                layer.build()

    @property
    def token_table(self):
        """The token `Table`, for outputs that are tied to it."""
        return self.embeddings.token

    def call(
        self,
        token_ids: Tensor,
        segment_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        rng: Draws | None = None,
        output_all: bool = False,
        pooled_positions: Tensor | None = None,
        cache: Any | None = None,
        slot: Size = 0,
        read_positions: Tensor | None = None,
        read_offsets: Tensor | None = None,
        padding_mask: Tensor | None = None,
        part_ids: Tensor | None = None,
        training: bool | None = None,
    ) -> dict[str, Any]:
        """Encodes a batch, or the next tokens of a batch with a cache: see the class."""
        self._check(token_ids, attention_mask, positions, cache)
        rng = self.draws(rng, training)
        padding_mask = self.padding_of(token_ids, padding_mask)
        attention_mask = self.masked(attention_mask, padding_mask)
        batch, length = ops.shape(token_ids)
        real = None
        if self.config.pooled_position == "last" and cache is None:
            real = masks.attended(attention_mask, batch, length)
        if self.config.causal:
            slots = (length, None) if cache is None else (cache[0][0].shape[2], slot)
            attention_mask = masks.combine(attention_mask, masks.causal(length, *slots))
        plain = output_all or read_offsets is not None
        masked = self._masks(attention_mask, part_ids, length, plain)
        rows = Rows(length, length if cache is None else cache[0][0].shape[2], slot, positions)
        # The rows for global layers, and those for local layers.
        kinds = [rows] if self.config.local_attention is None else [rows, rows._replace(local=True)]
        prepared = [schemes.prepare(self.schemes, self, each) for each in kinds]
        x = self.embeddings(token_ids, segment_ids, positions, rng=rng)
        to_pool = self.config.pooled_position, real, pooled_positions
        queries, num_pooled = read_positions, 0
        pools = self.pooler is not None and read_offsets is None
        if read_positions is not None and pools:
            pooled = base.pooled_positions(x, *to_pool)  # [B, K]
            queries = ops.concatenate([pooled, ops.cast(read_positions, pooled.dtype)], axis=1)
            num_pooled = pooled.shape[1]
        hidden_states, attended = self._run_blocks(
            x,
            masked,
            prepared,
            rng=rng,
            cache=cache,
            slot=slot,
            last_queries=queries,
            read_offsets=read_offsets,
            recompute=self.recompute and not output_all,
        )
        states = hidden_states[-1]
        if num_pooled:
            pooled, states = ops.split(states, [num_pooled], axis=1)
        outputs = {"sequence_output": states}
        if pools:
            if queries is None:
                pooled = base.pooled_states(states, *to_pool)
            elif pooled_positions is None:
                pooled = pooled[:, 0]
            activation = POOLER_ACTIVATIONS[self.config.pooler_activation]
            outputs["pooled_output"] = activation(self.pooler(pooled))
        if output_all:
            outputs["hidden_states"] = tuple(hidden_states)
            outputs["attentions"] = tuple(layer.weights for layer in attended)
            outputs["attention_parts"] = tuple(attended)
        if cache is not None:
            outputs["cache"] = tuple(layer.cache for layer in attended)
        return outputs if queries is not None else self.with_mask(outputs, padding_mask)

    def _masks(
        self, attention_mask: Tensor | None, part_ids: Tensor | None, length: Size, plain: bool
    ) -> tuple[Tensor | None, Tensor | Blocks | None]:
        """Returns the masks of global and of local layers; None = all may attend.

        With `plain`, local layers compute all scores, as global layers do.
        """
        parts = None if part_ids is None else masks.parts(part_ids)
        whole = masks.combine(attention_mask, parts)  # [B or 1, N or 1, T or 1, S]
        local = self.config.local_attention
        if local is None:
            return whole, None
        short = isinstance(length, int) and length <= _SHORT * local.window
        by_query = attention_mask is not None and attention_mask.shape[1:3] != (1, 1)
        if short or by_query or plain:
            return whole, masks.combine(whole, masks.window(length, length, local.reach))
        return whole, Blocks.of(length, local.reach, attention_mask, part_ids)

    def _run_blocks(
        self,
        x: Tensor,
        masked: tuple[Tensor | None, Tensor | Blocks | None],
        prepared: Sequence[Any],
        *,
        rng: Draws | None,
        cache: Any,
        slot: Size,
        last_queries,
        read_offsets: Tensor | None,
        recompute: bool,
    ):
        """Runs the blocks of all depths, and the final norm if there is one.

        `masked` and `prepared` are pairs: for global layers, and for local layers.

        Returns:
            The states, L + 1 tensors [B, T, D]; and the `Attended` of each depth, or None if it is
            recomputed for the gradient.
        """
        states, attended = [x], []
        for i, depth in enumerate(self.depths):
            local, last = int(self.config.is_local(i)), i == len(self.depths) - 1
            block = functools.partial(
                self.blocks[depth],
                attention_mask=masked[local],
                rng=rng,
                cache=None if cache is None else cache[i],
                slot=slot,
                query_positions=last_queries if last else None,
            )
            if recompute and rng is not None:
                block = functools.partial(_recomputed, block, rng)
            queries, positions = None, prepared[local]
            if read_offsets is not None and last:
                queries = take_positions(x, last_queries) + read_offsets
                queries = block(x=x, queries=queries, positions=positions).states
            x, layer, _ = block(x=x, queries=queries, positions=positions)
            if i == 0 and self.convolution is not None:
                x = self.convolution(states[0], x, masked[0], rng=rng)
            states.append(x)
            attended.append(layer)
        if self.final_norm is not None:
            states[-1] = self.final_norm(x)
        return states, attended

    def empty_cache(self, batch: Size, slots: Size):
        """Returns empty keys and values of every depth for a number of tokens.

        Returns:
            L pairs of [batch, N, slots, H].
        """
        size = self.config.hidden_size // self.config.num_heads
        empty = ops.zeros((batch, self.config.num_heads, slots, size), self.compute_dtype)
        return tuple((empty, empty) for _ in self.depths)

    def _check(self, token_ids: Tensor, attention_mask: Tensor, positions: Tensor, cache: Any):
        check_ranks(token_ids, attention_mask, "[B, N, T, S]")
        length = token_ids.shape[1]
        # A row with explicit positions may be longer than the table, because it may have several
        # parts.
        counted = positions is None
        if counted and length is not None and length > self.config.max_positions:
            raise UserError(
                f"sequences of {length} tokens, but the encoder has {self.config.max_positions} "
                "positions: use shorter sequences or raise encoder.max_positions"
            )
        if cache is not None and not self.config.causal:
            raise UserError(
                "a cache needs an encoder whose tokens do not attend to later tokens: set "
                "encoder.causal: true"
            )


def _recomputed(block: Callable[..., BlockOutput], rng: Draws, **tensors: Any) -> BlockOutput:
    """Returns the result of a block without its `Attended`: see `layers.recompute`.

    `block` has all arguments without a gradient bound, and draws dropout from `rng`.
    """
    return BlockOutput(recomputed(lambda **given: block(**given).states, rng, **tensors), None)


def block_names(num_layers: int, layer_groups: int | None = None, inner_layers: int = 1):
    """Returns the name of the block at each depth; depths with the same name share a block.

    This is the sharing of parameters of ALBERT (Lan et al. 2020, section 3.1).

    Without groups, each depth has its own block. With groups, depth `i` belongs to group
    `i * layer_groups // num_layers` and runs the `inner_layers` blocks of its group one after
    the other.

    Returns:
        A tuple of num_layers names, or num_layers * inner_layers names with groups.
    """
    if layer_groups is None:
        return tuple(f"layer_{i}" for i in range(num_layers))
    return tuple(
        f"group_{i * layer_groups // num_layers}_layer_{j}"
        for i in range(num_layers)
        for j in range(inner_layers)
    )
