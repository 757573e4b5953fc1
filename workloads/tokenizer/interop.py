"""Our vocabularies in other people's tokenizers, which tests and the benchmark hold ours against.

Needs ``tiktoken`` and ``tokenizers``; neither loads anything from a network here.
"""

from typing import TYPE_CHECKING

from workloads.tokenizer.patterns import Split
from workloads.tokenizer.vocabulary import Vocabulary, gpt2_characters

if TYPE_CHECKING:
    import tiktoken
    import tokenizers

# The cl100k pattern for Oniguruma: there ``$`` is the end of a line, and ``{1,3}+`` repeats.
_CL100K_ONIGURUMA = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++\z|\s*[\r\n]|\s+(?!\S)|\s"
)


def to_tiktoken(vocabulary: Vocabulary) -> "tiktoken.Encoding":
    """Return a tiktoken encoding with the same pattern, ranks and special tokens."""
    import tiktoken  # noqa: PLC0415

    ranks = {token: id for id, token in enumerate(vocabulary.tokens)}
    return tiktoken.Encoding(
        "ours", pat_str=vocabulary.split.pattern, mergeable_ranks=ranks, special_tokens=dict(vocabulary.special)
    )


def to_huggingface(vocabulary: Vocabulary) -> "tokenizers.Tokenizer":
    """Return a Hugging Face tokenizer with the same pattern and merges, and no special tokens."""
    import tokenizers  # noqa: PLC0415
    from tokenizers import models  # noqa: PLC0415

    shown = {byte: character for character, byte in gpt2_characters().items()}
    texts = ["".join(shown[byte] for byte in token) for token in vocabulary.tokens]
    ids = {text: id for id, text in enumerate(texts)}
    merges = [(texts[left], texts[right]) for left, right, _ in vocabulary.merges]
    found = tokenizers.Tokenizer(models.BPE(vocab=ids, merges=merges))
    found.pre_tokenizer = huggingface_split(vocabulary.split)
    return found


def huggingface_split(split: Split) -> "tokenizers.pre_tokenizers.PreTokenizer":
    """Return their pre-tokenizer for *split*."""
    from tokenizers import Regex, pre_tokenizers  # noqa: PLC0415

    if split is Split.GPT2:
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    if split is Split.NONE:
        return to_bytes
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(_CL100K_ONIGURUMA), "isolated"), to_bytes])
