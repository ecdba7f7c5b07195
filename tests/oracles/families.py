"""The families that have a reference and random checkpoints, by name: the one list of them."""

from mference.families import FAMILIES
from tests.oracles import gemma4, qwen36

ALL = {family.name: family for family in (gemma4.FAMILY, qwen36.FAMILY)}
# Those whose forward pass this version has.
RUN = {name: family for name, family in ALL.items() if FAMILIES[name].runnable}
