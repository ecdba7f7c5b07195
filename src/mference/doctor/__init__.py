"""What this machine can run, how fast, and whether it computes what it should."""

from mference.doctor.machine import Machine, inspect_machine
from mference.doctor.measure import ComputeSpeed, DiskSpeed, measure_compute, measure_disk
from mference.doctor.needs import Need, Rung, need_of_entry, need_of_install
from mference.doctor.selftest import Verdict, goldens, self_test
from mference.doctor.speed import SpeedForecast, forecast_speed

__all__ = [
    "ComputeSpeed",
    "DiskSpeed",
    "Machine",
    "Need",
    "Rung",
    "SpeedForecast",
    "Verdict",
    "forecast_speed",
    "goldens",
    "inspect_machine",
    "measure_compute",
    "measure_disk",
    "need_of_entry",
    "need_of_install",
    "self_test",
]
