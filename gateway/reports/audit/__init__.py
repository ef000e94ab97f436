"""The audit: what was reused and what was computed again, from the ledger alone."""

from gateway.reports.audit.audit import audit
from gateway.reports.audit.percentiles import Percentiles
from gateway.reports.audit.report import AuditReport, ClassFigures, GroupFigures, LostReuse, Money

__all__ = ["AuditReport", "ClassFigures", "GroupFigures", "LostReuse", "Money", "Percentiles", "audit"]
