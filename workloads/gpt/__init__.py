"""GPT-2, Llama and Qwen3, written to be read: configurations, modules, closed-form tables.  See the README here."""

from workloads.gpt.config import Config, Experts, RopeScaling
from workloads.gpt.presets import preset, preset_names

__all__ = ["Config", "Experts", "RopeScaling", "preset", "preset_names"]
