"""Measurements of the real machine, small enough for a test."""

import pytest

from mference import _core
from mference.doctor import inspect_machine, measure_compute, measure_disk
from mference.doctor.measure import ComputeSpeed
from mference.errors import ExpertFillError
from mference.store import open_install

MIB = 1 << 20


def test_the_machine_is_described(tmp_path):
    machine = inspect_machine(tmp_path / "not" / "yet")
    assert machine.cores >= 1
    assert machine.isas == tuple(_core.cpu_isas())
    assert machine.disk_path == str(tmp_path)
    assert 0 < machine.memory_available <= machine.memory
    assert machine.disk_free > 0
    assert machine.processor


def test_products_are_measured_from_small_to_large():
    compute = measure_compute(threads=1, pass_bytes=8 * MIB, passes=3)
    sizes, seconds = zip(*compute.products, strict=True)
    assert list(sizes) == sorted(sizes)
    assert seconds[-1] > seconds[0] > 0  # the largest has a hundred times the bytes
    assert 1e8 < compute.product < 1e12
    assert 1e8 < compute.memory < 1e13
    assert 0 < compute.round_trip < 0.1


def test_products_between_those_measured_are_interpolated():
    compute = ComputeSpeed(memory=1e10, products=((1000, 1e-6), (4000, 2e-6)), round_trip=1e-6)
    assert compute.product_seconds(1000) == pytest.approx(1e-6)
    assert compute.product_seconds(2000) == pytest.approx(2**0.5 * 1e-6)
    assert compute.product_seconds(12000) == pytest.approx(6e-6)


def test_the_disk_is_measured_and_nothing_stays_behind(tmp_path):
    disk = measure_disk(tmp_path, limit=4 * MIB, seconds=5)
    assert disk.cold > 0
    assert disk.cached > 0
    assert disk.read_bytes == MIB // 2
    assert list(tmp_path.iterdir()) == []


def test_the_files_of_an_install_are_read_and_stay_as_they_are(demo_install, tmp_path):
    install = open_install(demo_install)
    before = [install.layer_path(i).read_bytes() for i in range(6)]
    disk = measure_disk(tmp_path, install, limit=MIB)
    assert disk.read_bytes == install.layout.expert_stride
    assert disk.source == str(demo_install)
    assert [install.layer_path(i).read_bytes() for i in range(6)] == before
    assert list(tmp_path.iterdir()) == []


def test_measuring_ends_when_its_time_is_over(demo_install, tmp_path):
    disk = measure_disk(tmp_path, open_install(demo_install), seconds=0)
    assert disk.cold > 0


def test_a_place_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(OSError, match="missing"):
        measure_disk(tmp_path / "missing", limit=MIB)


def test_a_read_behind_the_end_of_a_file_is_an_error(tmp_path):
    path = tmp_path / "short"
    path.write_bytes(bytes(100))
    with path.open("rb") as file, pytest.raises(ExpertFillError, match="ends early"):
        _core.time_reads(file.fileno(), [0, 64], 64)


@pytest.mark.parametrize("readers", [0, 257])
def test_a_number_of_readers_out_of_range_is_refused(readers):
    with pytest.raises(ValueError, match="readers"):
        _core.time_reads(0, [0], 64, readers)
