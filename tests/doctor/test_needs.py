"""What a machine must have, as the installer and the loader judge it too."""

from dataclasses import replace

from mference import install
from mference.doctor import inspect_machine, need_of_entry
from mference.doctor.measure import ASSUMED_DISK
from mference.families import pinned_entry
from tests.doctor.test_speed import COMPUTE


def test_a_disk_on_which_the_installer_would_not_start_is_a_problem(tmp_path):
    required = install(output=tmp_path / "x.gturbo", entry="demo", dry_run=True).required
    machine = inspect_machine(tmp_path)

    def problem(free):
        there = replace(machine, disk_free=free)
        need = need_of_entry(pinned_entry("demo"), there, COMPUTE, ASSUMED_DISK, context=4096)
        return need.disk_problem

    assert "of disk to install" in problem(required - 1)
    assert problem(2 * required) == ""
