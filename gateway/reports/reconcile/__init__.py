"""What requests reported, against what their engine counted itself."""

from gateway.reports.reconcile.reconciler import Reconciler
from gateway.reports.reconcile.reconciliation import Reconciliation, differences

__all__ = ["Reconciler", "Reconciliation", "differences"]
