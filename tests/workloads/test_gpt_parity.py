"""The models against other ways of writing them: einsum, torch's own encoder layer, and themselves with a cache."""

import math

import pytest
import torch
from torch import Tensor, nn

from tests.workloads.gpt_configs import FAMILIES, GPT2, LLAMA, MOE, WINDOWED, all_logits, make, tokens
from workloads.gpt import Config
from workloads.gpt.attention import Attention
from workloads.gpt.feedforward import MixtureOfExperts, SwiGLU
from workloads.gpt.model import Block, Model, make_cache
from workloads.gpt.rope import rotations

FULL = [config for config in FAMILIES.values() if not config.experts]


def reference(model: Model, ids: Tensor) -> Tensor:
    """Return all logits, in one function, by einsum over named axes and an explicit score matrix."""
    c = model.config
    w: dict[str, Tensor] = dict(model.named_parameters(remove_duplicate=False))
    length = ids.shape[1]
    x = w["embedding.weight"][ids]
    if c.positions == "learned":
        x = x + w["position_embedding.weight"][:length]
    for layer in range(c.layers):
        own = {name.removeprefix(f"blocks.{layer}."): value for name, value in w.items() if f"blocks.{layer}." in name}
        y = norm(x, own, "attention_norm", c)
        a = x + attention(y, own, c, c.window_of(layer))
        x = a + feed_forward(y if c.parallel else norm(a, own, "ffn_norm", c), own)
    return torch.einsum("bsd,vd->bsv", norm(x, w, "norm", c), w["head.weight"])


def norm(x: Tensor, w: dict[str, Tensor], name: str, c: Config) -> Tensor:
    centred = x - x.mean(-1, keepdim=True) if c.norm == "layer" else x
    return centred / ((centred**2).mean(-1, keepdim=True) + c.norm_eps).sqrt() * w[f"{name}.weight"] + w.get(
        f"{name}.bias", torch.zeros(())
    )


def linear(x: Tensor, w: dict[str, Tensor], name: str) -> Tensor:
    return torch.einsum("bsi,oi->bso", x, w[f"{name}.weight"]) + w.get(f"{name}.bias", torch.zeros(()))


def attention(x: Tensor, w: dict[str, Tensor], c: Config, window: int) -> Tensor:
    b, s, _ = x.shape
    if c.fused_qkv:
        qkv = linear(x, w, "attention.qkv")
        q, k, v = qkv[..., : c.q_width], qkv[..., c.q_width : -c.kv_width], qkv[..., -c.kv_width :]
    else:
        q, k, v = (linear(x, w, f"attention.{name}") for name in "qkv")
    q, k, v = (z.reshape(b, s, -1, c.head_dim) for z in (q, k, v))
    if c.qk_norm:
        q, k = norm(q, w, "attention.q_norm", c), norm(k, w, "attention.k_norm", c)
    if c.positions == "rope":
        q, k = turn(q, c), turn(k, c)
    k, v = (z.repeat_interleave(c.heads // c.kv_heads, dim=2) for z in (k, v))
    scores = torch.einsum("bqnh,bknh->bnqk", q, k) / math.sqrt(c.head_dim)
    for query in range(s):
        for key in range(s):
            if key > query or (window and key <= query - window):
                scores[:, :, query, key] = -math.inf
    out = torch.einsum("bnqk,bknh->bqnh", scores.softmax(-1), v).reshape(b, s, -1)
    return linear(out, w, "attention.o")


def turn(x: Tensor, c: Config) -> Tensor:
    """Rotate by complex multiplication instead of by halves."""
    half = c.head_dim // 2
    cos, sin = rotations(c, x.shape[1])
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.complex(cos, sin)[:, None]
    return torch.cat((turned.real, turned.imag), dim=-1)


def feed_forward(x: Tensor, w: dict[str, Tensor]) -> Tensor:
    up = linear(x, w, "ffn.up")
    if "ffn.gate.weight" in w:
        gate = linear(x, w, "ffn.gate")
        hidden = gate * gate.sigmoid() * up
    else:
        hidden = 0.5 * up * (1 + torch.tanh(math.sqrt(2 / math.pi) * (up + 0.044715 * up**3)))
    return linear(hidden, w, "ffn.down")


@pytest.mark.parametrize("config", FULL, ids=lambda config: config.name)
def test_logits_are_those_of_the_einsum_reference(config: Config) -> None:
    model, ids = make(config), tokens(config)
    with torch.no_grad():
        torch.testing.assert_close(all_logits(model, ids), reference(model, ids), rtol=1e-4, atol=1e-4)


def test_a_block_is_torchs_encoder_layer() -> None:
    # Pre-norm, GELU and a causal mask make nn.TransformerEncoderLayer a GPT-2 block; its GELU has to be the tanh form.
    block, x = Block(GPT2, layer=0), torch.randn(2, 7, GPT2.width)
    layer = nn.TransformerEncoderLayer(
        GPT2.width, GPT2.heads, GPT2.ffn, dropout=0.0, activation=nn.GELU("tanh"), batch_first=True, norm_first=True
    )
    names = {
        "attention.qkv": "self_attn.in_proj_", "attention.o": "self_attn.out_proj.", "ffn.up": "linear1.",
        "ffn.down": "linear2.", "attention_norm": "norm1.", "ffn_norm": "norm2.",
    }  # fmt: skip
    theirs = layer.state_dict()
    ours = {f"{ours}.{part}": theirs[theirs_name + part] for ours, theirs_name in names.items() for part in
            ("weight", "bias")}  # fmt: skip
    block.load_state_dict(ours)
    mask = nn.Transformer.generate_square_subsequent_mask(7)
    with torch.no_grad():
        torch.testing.assert_close(block(x), layer(x, src_mask=mask, is_causal=True), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("config", FAMILIES.values(), ids=lambda config: config.name)
def test_decoding_with_a_cache_is_the_full_forward_pass(config: Config) -> None:
    model, ids = make(config), tokens(config)
    wanted = all_logits(model, ids)
    cache = make_cache(config, batch=2, context=12)
    model.eval()
    with torch.no_grad():
        steps = [model(ids[:, :5], cache, 0)]  # the prompt, then one token at a time
        steps += [model(ids[:, at : at + 1], cache, at) for at in range(5, 12)]
    got = torch.cat(steps, dim=1)
    torch.testing.assert_close(got, wanted[:, 4:], rtol=1e-4, atol=1e-4)
    assert torch.equal(got.argmax(-1), wanted[:, 4:].argmax(-1))


@pytest.mark.parametrize("config", [GPT2, LLAMA, WINDOWED], ids=lambda config: config.name)
def test_a_prompt_may_come_in_chunks(config: Config) -> None:
    model, ids = make(config), tokens(config)
    wanted = all_logits(model, ids)
    cache = make_cache(config, batch=2, context=64)  # more room than is used
    model.eval()
    with torch.no_grad():
        got = [model(ids[:, start : start + 4], cache, start) for start in (0, 4, 8)]
    torch.testing.assert_close(torch.cat(got, dim=1), wanted[:, 3::4], rtol=1e-4, atol=1e-4)


def test_the_cache_is_written_in_place_and_only_where_it_must_be() -> None:
    model, ids = make(LLAMA).eval(), tokens(LLAMA)
    cache = make_cache(LLAMA, batch=2, context=12)
    addresses = [tensor.data_ptr() for pair in cache for tensor in pair]
    with torch.no_grad():
        model(ids[:, :1], cache, 3)
    assert [tensor.data_ptr() for pair in cache for tensor in pair] == addresses
    for keys, values in cache:
        for store in (keys, values):
            assert [bool(store[:, :, at].any()) for at in range(6)] == [False, False, False, True, False, False]


def test_a_mixture_is_a_weighted_sum_of_its_experts() -> None:
    experts = MOE.experts
    assert experts is not None
    torch.manual_seed(0)
    mixture, x = MixtureOfExperts(MOE.width, experts), torch.randn(2, 3, MOE.width)
    for weight in mixture.parameters():
        nn.init.normal_(weight, std=0.2)
    with torch.no_grad():
        wanted = torch.zeros_like(x)
        for b in range(2):
            for s in range(3):
                best = sorted(enumerate(mixture.router(x[b, s]).tolist()), key=lambda pair: -pair[1])[: experts.active]
                share = torch.tensor([score for _, score in best]).softmax(-1)
                for (expert, _), part in zip(best, share, strict=True):
                    wanted[b, s] += part * single(mixture, expert)(x[b, s])
        torch.testing.assert_close(mixture(x), wanted, rtol=1e-5, atol=1e-5)


def single(mixture: MixtureOfExperts, expert: int) -> SwiGLU:
    """Return one expert as a network of its own; nn.Linear stores its matrix transposed."""
    network = SwiGLU(MOE.width, 16)
    matrices = {"gate": mixture.gate, "up": mixture.up, "down": mixture.down}
    network.load_state_dict({f"{name}.weight": matrix[expert].T for name, matrix in matrices.items()})
    return network


def test_a_window_as_wide_as_the_prompt_is_full_attention() -> None:
    torch.manual_seed(0)
    full, windowed, x = Attention(LLAMA), Attention(LLAMA, window=9), torch.randn(1, 9, LLAMA.width)
    windowed.load_state_dict(full.state_dict())
    with torch.no_grad():
        assert torch.equal(full(x), windowed(x))
