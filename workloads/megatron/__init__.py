"""Megatron's GPT of 2022, whose measured steps the parallel plans are validated against."""
