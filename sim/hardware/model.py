"""The shape of a transformer, and what follows from it: parameters, FLOPs, bytes of keys and values."""

from __future__ import annotations

from dataclasses import dataclass

from sim.hardware.gpu import BYTES


@dataclass(frozen=True, slots=True)
class Model:
    """The shape of a transformer; parameters, FLOPs and KV bytes follow from it.

    Attributes
    ----------
    layers, hidden, heads, kv_heads, head_dim
        As in its ``config.json``.
    ffn
        Width of a dense feed-forward block, 0 without one.
    vocabulary, window
        Tokens known; tokens of the longest context.
    source
        Where the shape is from.
    attention_layers
        Layers that keep keys and values of every token (fewer than `layers` in hybrid models); None means all.
    ffn_matrices
        Matrices of a feed-forward block: 3 with a gate, 2 without.
    experts, experts_per_token, expert_ffn, shared_experts, dense_layers
        Mixture of experts: routed experts a layer, how many a token visits, width of one, experts that every token
        visits besides, and leading layers with a dense block instead.
    kv_rank, q_rank, rope_dim
        Multi-head latent attention: width of the stored latent, of the compressed query (0: not compressed) and of the
        shared rotary key. `kv_rank` 0 means ordinary (grouped) keys and values.
    tied
        Whether the output head is the embedding matrix.
    parameters
        Their published number where the shape alone does not give it (linear-attention layers); None means computed.
    weights
        Number type of the published weights.
    aliases
        Other names it is known by, Hugging Face ids among them.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    window: int
    source: str
    ffn: int = 0
    attention_layers: int | None = None
    ffn_matrices: int = 3
    experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int = 0
    shared_experts: int = 0
    dense_layers: int = 0
    kv_rank: int = 0
    q_rank: int = 0
    rope_dim: int = 0
    tied: bool = False
    parameters: float | None = None
    weights: str = "bf16"
    aliases: tuple[str, ...] = ()

    @property
    def kv_layers(self) -> int:
        """Layers that keep keys and values of every token."""
        return self.layers if self.attention_layers is None else self.attention_layers

    @property
    def head_parameters(self) -> int:
        """Weights of the output head (and of the embedding, which only looks up rows)."""
        return self.vocabulary * self.hidden

    @property
    def routed_parameters(self) -> int:
        """Weights of all routed experts; a step reads those its tokens visit."""
        return (self.layers - self.dense_layers) * self.experts * self.ffn_matrices * self.hidden * self.expert_ffn

    @property
    def common_parameters(self) -> float:
        """Weights that every step reads and every token passes, embedding and output head left out."""
        if self.parameters is not None:
            return self.parameters - self.routed_parameters - self.head_parameters * (1 if self.tied else 2)
        dense = self.layers if not self.experts else self.dense_layers
        gate = self.hidden * self.experts + self.ffn_matrices * self.hidden * self.expert_ffn * self.shared_experts
        return (
            self.layers * self._attention_parameters
            + dense * self.ffn_matrices * self.hidden * self.ffn
            + (self.layers - dense) * gate
        )

    @property
    def _attention_parameters(self) -> int:
        if not self.kv_rank:
            return self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        query_head = self.head_dim + self.rope_dim
        query = (
            self.hidden * self.q_rank + self.q_rank * self.heads * query_head
            if self.q_rank
            else self.hidden * self.heads * query_head
        )
        return (
            query
            + self.hidden * (self.kv_rank + self.rope_dim)
            + self.heads * self.head_dim * (2 * self.kv_rank + self.hidden)
        )

    @property
    def total_parameters(self) -> float:
        """All weights, embedding included."""
        return self.common_parameters + self.routed_parameters + self.head_parameters * (1 if self.tied else 2)

    @property
    def active_parameters(self) -> float:
        """Weights that take part in one token, embedding included."""
        visited = self.routed_parameters * self.experts_per_token / self.experts if self.experts else 0.0
        return self.common_parameters + visited + self.head_parameters * (1 if self.tied else 2)

    def experts_touched(self, tokens: int) -> float:
        """Return the expected share of routed experts that `tokens` tokens visit, choosing evenly: 1 - (1 - k/E)^n."""
        return 1.0 - (1.0 - self.experts_per_token / self.experts) ** tokens if self.experts else 0.0

    def weight_bytes(self, dtype: str | None = None) -> float:
        """Return the bytes of all weights, in the number type `dtype` (None: as published)."""
        return self.total_parameters * BYTES[dtype or self.weights]

    def kv_bytes_per_token(self, dtype: str = "bf16", tensor_parallel: int = 1) -> float:
        """Return the bytes of one token's keys and values on *one* GPU of `tensor_parallel`.

        ``2 * layers * kv_heads * head_dim * bytes`` shared over the GPUs, a head being the smallest share; latent
        attention stores ``layers * (kv_rank + rope_dim) * bytes``, the same on every GPU.
        """
        if self.kv_rank:
            return self.kv_layers * (self.kv_rank + self.rope_dim) * BYTES[dtype]
        return 2 * self.kv_layers * max(1.0, self.kv_heads / tensor_parallel) * self.head_dim * BYTES[dtype]

    def attention_flops_per_pair(self, absorbed: bool) -> float:
        """Return the FLOPs of one query token meeting one context token, all layers.

        ``4 * layers * heads * head_dim`` (scores and weighted sum, a multiplication and an addition each). With latent
        attention a decode works on the latent itself (`absorbed`), a prefill on the expanded keys and values.
        """
        if not self.kv_rank:
            return 4.0 * self.kv_layers * self.heads * self.head_dim
        widths = 2 * self.kv_rank + self.rope_dim if absorbed else 2 * self.head_dim + self.rope_dim
        return 2.0 * self.kv_layers * self.heads * widths
