"""Checkpoints of full size that exist only as a rule, each family's in a file of its own."""

from imagined import gemma4, qwen36
from imagined.model import ImaginedModel

MODELS: dict[str, ImaginedModel] = {m.entry: m for m in (gemma4.MODEL, qwen36.MODEL)}
