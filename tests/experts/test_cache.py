"""The cache's policy against a plain model of it, over random requests."""

from hypothesis import given
from hypothesis import strategies as st

from mference._core import ExpertCache

EXPERTS = 12


class PlainCache:
    """The rule as a sentence: empty slots, fewest uses, oldest use, lowest slot."""

    def __init__(self, slots: int):
        self.owner = [-1] * slots
        self.last = [0] * slots
        self.uses = [0] * EXPERTS
        self.clock = 0

    def load(self, experts: list[int], avoid: list[int]) -> list[int] | None:
        placed = {e: self.owner.index(e) for e in experts if e in self.owner}
        free = [s for s in range(len(self.owner)) if s not in avoid and s not in placed.values()]
        missing = [e for e in experts if e not in placed]
        if len(missing) > len(free):
            return None

        def value(slot: int) -> tuple:
            owner = self.owner[slot]
            return (owner >= 0, self.uses[owner] if owner >= 0 else 0, self.last[slot], slot)

        for expert, slot in zip(missing, sorted(free, key=value), strict=False):
            self.owner[slot] = expert
            placed[expert] = slot
        self.clock += 1
        for expert in experts:
            self.uses[expert] += 1
            self.last[placed[expert]] = self.clock
        return [placed[e] for e in experts]


requests = st.lists(st.integers(0, EXPERTS - 1), min_size=1, max_size=4, unique=True)


@given(
    slots=st.integers(1, 8),
    steps=st.lists(st.tuples(requests, st.lists(st.integers(0, 7), max_size=3)), max_size=40),
)
def test_requests_are_placed_as_the_plain_rule_says(slots, steps):
    cache, plain = ExpertCache(slots, EXPERTS), PlainCache(slots)
    for experts, avoid in steps:
        plan = cache.plan(experts, avoid)
        assert (plan.slots if plan else None) == plain.load(experts, avoid)
        if plan:
            cache.publish(plan)
        owners = cache.owners()
        assert owners == plain.owner
        assert cache.table() == [owners.index(e) if e in owners else -1 for e in range(EXPERTS)]


@given(steps=st.lists(requests, min_size=1, max_size=30))
def test_a_request_never_shares_a_slot(steps):
    cache = ExpertCache(4, EXPERTS)
    for experts in steps:
        plan = cache.plan(experts)
        assert len(set(plan.slots)) == len(experts)
        assert plan.hits + len(plan.misses) == len(experts)
        cache.publish(plan)
