"""The arithmetic of a speed, and that it is of the order of what a model then does."""

import statistics
import time

import pytest

from mference.doctor import ComputeSpeed, DiskSpeed, forecast_speed, measure_compute, measure_disk
from mference.doctor.speed import cached_share, expected_hits
from mference.engine import build_core
from mference.families import pinned_entry
from mference.memory import footprint_of, forecast_memory, installed_footprint
from mference.store import open_install

GEMMA = pinned_entry("gemma4").arch
FOOTPRINT = footprint_of(GEMMA)
# 40 GB/s whatever the size, so that the sum can be done by hand.
COMPUTE = ComputeSpeed(40e9, ((1000, 1000 / 40e9), (10**7, 10**7 / 40e9)), 1e-5)
DISK = DiskSpeed(1e9, 10e9, 3_358_720, "a test")


def forecast(slots, **options):
    settings = {"position": 1024, "cached": 0.0} | options
    return forecast_speed(GEMMA, FOOTPRINT, slots, COMPUTE, DISK, **settings)


def test_a_token_is_the_sum_of_what_it_reads():
    speed = forecast("resident")
    assert speed.weights == pytest.approx(1_353_689_148 / 40e9)
    assert speed.experts == pytest.approx(240 * 3_345_408 / 40e9)
    assert speed.state == pytest.approx((25 * 1024 * 8192 + 5 * 1024 * 4096) / 40e9)
    assert speed.layers == pytest.approx(30e-5)
    assert (speed.reads, speed.read_bytes, speed.hit_rate) == (0, 0, 1)
    parts = (speed.weights, speed.experts, speed.state, speed.layers, speed.reads)
    assert speed.tokens_per_second == pytest.approx(1 / sum(parts))


def test_the_disk_reads_while_the_hits_are_computed():
    speed = forecast(16)
    missing = 240 * 0.44 * 3_358_720
    meanwhile = (30 * 10_036_224 + 240 * 0.56 * 3_345_408) / 40e9
    assert speed.read_bytes == pytest.approx(missing, rel=1e-6)
    assert speed.reads == pytest.approx(missing / 1e9 - meanwhile, rel=1e-6)


def test_a_disk_that_is_fast_enough_costs_nothing():
    fast = DiskSpeed(1e12, 1e12, 3_358_720, "a test")
    speed = forecast_speed(GEMMA, FOOTPRINT, 16, COMPUTE, fast, position=1, cached=0.0)
    assert speed.reads == 0


def test_what_the_page_cache_holds_is_copied_and_nothing_else_happens():
    speed = forecast(16, cached=1.0)
    assert speed.reads == pytest.approx(speed.read_bytes / 10e9)


def test_a_measured_hit_rate_stands_in_for_the_expected_one():
    assert forecast(16, hit_rate=0.13).read_bytes == pytest.approx(240 * 0.87 * 3_358_720)
    assert forecast(16, hit_rate=1.0).reads == 0


@pytest.mark.parametrize(
    ("slots", "experts", "hits"),
    [
        (16, 128, 0.56),
        (24, 128, 0.68),
        (32, 128, 0.74),
        (64, 128, 0.85),
        (128, 128, 1),
        (32, 256, 0.56),
        (256, 256, 1),
        ("resident", 256, 1),
        (64, 8, 1),
    ],
)
def test_hits_are_those_of_the_same_share_of_slots(slots, experts, hits):
    assert expected_hits(slots, experts) == pytest.approx(hits)


def test_more_slots_are_never_slower():
    speeds = [forecast(n).tokens_per_second for n in (8, 16, 24, 32, 64, 96, 128)]
    assert speeds == sorted(speeds)


def test_the_page_cache_holds_what_the_model_leaves():
    memory = forecast_memory(GEMMA, FOOTPRINT, 16, context=4096, chunk=128)
    held = memory.own + memory.common
    assert cached_share(memory, 10**10, held) == 0
    assert cached_share(memory, 10**10, held + 5 * 10**9) == pytest.approx(0.5)
    assert cached_share(memory, 10**10, 10**12) == 1


def test_the_demo_runs_at_about_the_speed_that_is_forecast(demo_install, tmp_path):
    install = open_install(demo_install)
    compute = measure_compute(pass_bytes=32 << 20, passes=5)
    disk = measure_disk(tmp_path, install)
    core = build_core(install, slots="resident", context=512)
    core.greedy(list(range(1000, 1100)))
    times = []
    token = 5
    for _ in range(60):
        start = time.perf_counter()
        token = core.greedy([token])
        times.append(time.perf_counter() - start)
    speed = forecast_speed(
        install.manifest.arch, installed_footprint(install), "resident", compute, disk,
        position=130, cached=1.0,
    )  # fmt: skip
    # Other work on the machine may hit either of them; a wrong unit is off by far more.
    assert 0.2 < speed.seconds / statistics.median(times) < 5
