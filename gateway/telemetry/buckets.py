"""Bounds of histograms, in seconds but for tokens.

Those of OpenTelemetry's semantic conventions for generative AI (`docs/gen-ai/gen-ai-metrics.md` there), which end
early: the larger ones here are for long answers and for prompts on a CPU.
"""

REQUEST_DURATION = (
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68, 655.36,
)  # fmt: skip
TIME_TO_FIRST_TOKEN = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
# The convention begins with 0.01; small models on a GPU are faster.
TIME_PER_OUTPUT_TOKEN = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
)  # fmt: skip
TOKEN_USAGE = tuple(float(4**step) for step in range(14))  # 1 to 67,108,864
QUEUE = TIME_TO_FIRST_TOKEN  # queueing is a part of it, and no convention names it
