"""Opt-in capture of bodies, for `kvgate lint`: sampled, redacted, bounded, and private to this user."""

from gateway.ledger.capture.body_capture import BodyCapture, CaptureCounts, CaptureSettings, capture_settings
from gateway.ledger.capture.redaction import Redaction

__all__ = ["BodyCapture", "CaptureCounts", "CaptureSettings", "Redaction", "capture_settings"]
