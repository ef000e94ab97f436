"""One examination of a live engine: does it report reuse, does it hit, does it keep tenants apart."""

from gateway.reports.doctor.checkup import Check, Checkup
from gateway.reports.doctor.doctor import Doctor, Plan

__all__ = ["Check", "Checkup", "Doctor", "Plan"]
