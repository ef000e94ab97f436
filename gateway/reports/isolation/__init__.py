"""Whether two tenants are apart in the caches behind an address: by what is reported, and by what time tells."""

from gateway.reports.isolation.examination import Examination, Scale, Sides
from gateway.reports.isolation.result import Isolation

__all__ = ["Examination", "Isolation", "Scale", "Sides"]
