"""SHA-256 of the core against Python's, alone and in pairs."""

import random
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from itertools import pairwise

import numpy as np
import pytest

from mference._core import hashing
from mference.errors import DeviceError

needs_instructions = pytest.mark.skipif(
    not hashing.accelerated(), reason="this processor has no instructions for SHA-256"
)
DATA = random.Random(1).randbytes(1 << 20)


def expected(data) -> str:
    return sha256(data).hexdigest()


def cuts(rng: random.Random, size: int, parts: int) -> list[slice]:
    edges = [0, *sorted(rng.randint(0, size) for _ in range(parts - 1)), size]
    return [slice(a, b) for a, b in pairwise(edges)]


@pytest.mark.skipif(hashing.accelerated(), reason="this processor has instructions for SHA-256")
def test_a_processor_without_the_instructions_is_an_error_that_names_hashlib():
    with pytest.raises(DeviceError, match="hashlib"):
        hashing.Sha256()


@needs_instructions
class TestOneMessage:
    def test_every_length_around_the_padding_has_hashlibs_digest(self):
        for size in range(201):
            message = hashing.Sha256()
            message.update(DATA[:size])
            assert message.hexdigest() == expected(DATA[:size]), size

    def test_the_cuts_between_updates_do_not_matter(self):
        rng = random.Random(2)
        for _ in range(200):
            size = rng.randint(0, 1000)
            message = hashing.Sha256()
            for cut in cuts(rng, size, rng.randint(1, 8)):
                message.update(DATA[cut])
            assert message.hexdigest() == expected(DATA[:size])

    def test_a_digest_leaves_the_message_as_it_was(self):
        message = hashing.Sha256()
        for size in range(0, 300, 30):
            assert message.hexdigest() == message.hexdigest() == expected(DATA[:size])
            message.update(DATA[size : size + 30])

    @pytest.mark.slow
    def test_a_length_of_more_than_two_to_the_32_bits_is_counted(self):
        message, reference = hashing.Sha256(), sha256()
        for _ in range(513):
            message.update(DATA)
            reference.update(DATA)
        assert message.hexdigest() == reference.hexdigest()

    def test_any_contiguous_buffer_is_hashed_from_where_it_starts(self):
        writable = bytearray(DATA)
        for source in (DATA, writable, memoryview(DATA), np.frombuffer(DATA, np.float32)):
            message = hashing.Sha256()
            message.update(source)
            assert message.hexdigest() == expected(DATA)
        for offset in range(1, 65):
            message = hashing.Sha256()
            message.update(memoryview(writable)[offset : offset + 5000])
            assert message.hexdigest() == expected(DATA[offset : offset + 5000])
        writable.append(0)  # nothing holds it any more

    def test_what_is_no_contiguous_buffer_is_refused(self):
        message = hashing.Sha256()
        with pytest.raises(BufferError):
            message.update(memoryview(DATA)[::2])
        with pytest.raises(TypeError):
            message.update("text")
        assert message.hexdigest() == expected(b"")


@needs_instructions
class TestTwoMessages:
    def test_lengths_and_cuts_of_the_two_are_independent(self):
        rng = random.Random(3)
        for _ in range(500):
            sizes = rng.randint(0, 700), rng.randint(0, 700)
            parts = rng.randint(1, 5)
            a, b = hashing.Sha256(), hashing.Sha256()
            for cut_a, cut_b in zip(*(cuts(rng, size, parts) for size in sizes), strict=True):
                hashing.update_pair(a, DATA[cut_a], b, memoryview(DATA)[1000:][cut_b])
            assert a.hexdigest() == expected(DATA[: sizes[0]])
            assert b.hexdigest() == expected(DATA[1000 : 1000 + sizes[1]])

    def test_pairs_and_single_updates_mix(self):
        a, b = hashing.Sha256(), hashing.Sha256()
        a.update(DATA[:10])
        hashing.update_pair(a, DATA[10:900], b, DATA[:500])
        b.update(DATA[500:501])
        hashing.update_pair(b, DATA[501:], a, b"")
        assert a.hexdigest() == expected(DATA[:900])
        assert b.hexdigest() == expected(DATA)

    def test_both_may_read_the_same_bytes(self):
        a, b = hashing.Sha256(), hashing.Sha256()
        b.update(b"x")
        hashing.update_pair(a, DATA, b, DATA)
        assert a.hexdigest() == expected(DATA)
        assert b.hexdigest() == expected(b"x" + DATA)

    def test_a_message_cannot_be_paired_with_itself(self):
        message = hashing.Sha256()
        with pytest.raises(ValueError, match="two different"):
            hashing.update_pair(message, b"a", message, b"b")
        assert message.hexdigest() == expected(b"")

    def test_a_refused_buffer_leaves_both_as_they_were(self):
        a, b = hashing.Sha256(), hashing.Sha256()
        with pytest.raises(BufferError):
            hashing.update_pair(a, DATA, b, memoryview(DATA)[::2])
        assert a.hexdigest() == b.hexdigest() == expected(b"")


@needs_instructions
class TestThreads:
    def test_messages_of_several_threads_do_not_touch(self):
        def digests(start: int) -> tuple[str, str]:
            a, b = hashing.Sha256(), hashing.Sha256()
            for _ in range(5):
                hashing.update_pair(a, memoryview(DATA)[start:], b, memoryview(DATA)[:-start])
            return a.hexdigest(), b.hexdigest()

        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(digests, range(1, 9)))
        for start, pair in enumerate(found, 1):
            assert pair == (expected(DATA[start:] * 5), expected(DATA[:-start] * 5))

    def test_updates_of_one_message_by_several_threads_come_one_after_another(self):
        a, b = hashing.Sha256(), hashing.Sha256()
        part = bytes(100_001)

        def update(turn: int) -> None:
            for _ in range(20):
                if turn % 2:
                    hashing.update_pair(a, part, b, part)
                else:
                    hashing.update_pair(b, part, a, part)

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(update, range(4)))
        assert a.hexdigest() == b.hexdigest() == expected(part * 80)
