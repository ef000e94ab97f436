"""What options of `kvgate serve` may be set to."""

from enum import StrEnum


class Device(StrEnum):
    """Where the embedded engine runs."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class Dtype(StrEnum):
    """Numbers of the weights and of the KV cache."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


class Quantize(StrEnum):
    """What a number of a cold block shrinks to."""

    int8 = "int8"
    fp8 = "fp8"


class WritePolicy(StrEnum):
    """When a block is copied below the device."""

    write_through_on_second_hit = "write_through_on_second_hit"
    write_back = "write_back"
    none = "none"


class ControlTokens(StrEnum):
    """What is done about special tokens typed inside a message."""

    allow = "allow"
    report = "report"
    reject = "reject"
