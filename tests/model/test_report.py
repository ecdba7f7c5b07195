"""The report of a model: phases, counters, memory."""

from dataclasses import asdict

import mference

PROMPT = "A lighthouse is"


def test_reads_are_split_into_overlapped_and_exposed(demo_install):
    with mference.load(demo_install, slots=8) as model:
        model.generate(PROMPT, max_new=30, temperature=0)
        report = model.report()
    assert report.misses > 0
    assert report.fill_seconds > 0
    assert report.read_seconds > 0
    assert 0 <= report.exposed_read_seconds <= report.fill_seconds
    split = report.overlapped_read_seconds + report.exposed_read_seconds
    assert abs(split - report.fill_seconds) < 1e-9
    for phase in ("mix", "router_wait", "routed", "head"):
        assert getattr(report, f"{phase}_seconds") > 0


def test_nothing_is_read_into_slots_where_files_are_mapped(demo_install):
    with mference.load(demo_install, slots="resident") as model:
        model.generate(PROMPT, max_new=5, temperature=0)
        report = model.report()
    assert (report.misses, report.bytes_read, report.fill_seconds) == (0, 0, 0)
    assert report.hit_rate == 1


def test_memory_peaks_are_at_least_what_was_seen(demo_install):
    with mference.load(demo_install, slots=16) as model:
        model.generate(PROMPT, max_new=5, temperature=0)
        memory = model.report().memory
    assert None not in asdict(memory).values()
    assert memory.peak_own >= memory.own > 0
    assert memory.peak_mapped >= memory.mapped > 0
    assert memory.peak >= max(memory.peak_own, memory.peak_mapped)
