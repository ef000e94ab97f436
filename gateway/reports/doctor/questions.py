"""The checks that follow from what an engine said of a few prompts. No I/O, so every sickness can be written down."""

from gateway.reports.doctor.block_size import BlockSize
from gateway.reports.doctor.checkup import Check
from gateway.reports.doctor.kinds import Advice
from gateway.reports.doctor.prober import Told

SALT = "Does cache_salt keep tenants apart?"
_FASTER = 0.5  # of the cold time: what a hit on a long prompt is well under


def check_reports(warm: Told, cold: Told, advice: Advice) -> Check:
    """Does it say at all what it reused?"""
    name, question = "reports", "Does it report reuse?"
    if warm.prompt is None and warm.reused is None:
        return Check(name, question, "no", "The answer has no usage at all.", advice.report)
    if warm.reuse.status == "not_reported":
        why = f" ({warm.reuse.source})" if "(" in warm.reuse.source else ""
        hint = _speed_hint(cold, warm)
        return Check(name, question, "no", f"Usage says nothing of cached tokens{why}.{hint}", advice.report)
    return Check(name, question, "yes", f"In {warm.reuse.source}.")


def check_fresh(cold: Told) -> Check:
    """Is a prompt that was never sent before reported as computed?"""
    name, question = "fresh", "Is a prompt never sent before reported as computed?"
    if cold.reused is None or cold.prompt is None:
        return Check(name, question, "unknown", "It said nothing; some engines leave out a zero.")
    if cold.reused * 2 <= cold.prompt:
        return Check(name, question, "yes", f"{cold.reused:,} of {cold.prompt:,} tokens reused.")
    why = "That is the whole prompt but its last token, as an engine with separate prefill reports always."
    detail = f"{cold.reused:,} of {cold.prompt:,} tokens of a new prompt are said to be reused."
    if cold.reused != cold.prompt - 1:
        why = "The figure is made up."
    return Check(
        name, question, "no", f"{detail} {why}", "Do not bill by this figure: read the prefill engine's."
    )


def check_repeat(cold: Told, warm: Told, advice: Advice) -> Check:
    """Does the same prompt hit the second time, and by how much?"""
    name, question = "repeat", "Does a repeated prompt hit?"
    if warm.reused is None or warm.prompt is None:
        return Check(name, question, "unknown", f"It did not say.{_speed_hint(cold, warm)}")
    share = warm.reused / warm.prompt if warm.prompt else 0.0
    times = f"{cold.seconds * 1000:,.0f} ms, then {warm.seconds * 1000:,.0f} ms"
    detail = f"{warm.reused:,} of {warm.prompt:,} tokens ({share:.1%}); {times}."
    if warm.reused > (cold.reused or 0):
        return Check(name, question, "yes", detail)
    hint = _speed_hint(cold, warm)
    return Check(name, question, "no", detail + hint, advice.report if hint else advice.hit)


def check_bounds(told: list[Told]) -> Check:
    """Is reused never more than the prompt, and do tiers add up?"""
    name, question = "bounds", "Is reused never more than the prompt?"
    said = [each for each in told if each.reused is not None]
    odd = [each for each in said if each.reuse.status == "inconsistent"]
    if odd:
        first = odd[0]
        tiers = f", tiers {dict(first.reuse.by_tier)}" if first.reuse.by_tier else ""
        detail = f"{len(odd)} of {len(said)} answers cannot be true: {first.reused:,} of {first.prompt} tokens{tiers}."
        return Check(
            name, question, "no", detail, "Report it to whoever makes the engine; kvgate keeps and flags it."
        )
    if not said:
        return Check(name, question, "unknown", "It did not say.")
    return Check(name, question, "yes", f"In {len(said)} answers.")


def check_stream(whole: Told, stream: Told | None, advice: Advice) -> Check:
    """Is usage there when streaming, and is it the same? `stream` is None where it was refused."""
    name, question = "stream", "Is usage there when streaming, and the same?"
    if stream is None:
        return Check(name, question, "no", "A stream with stream_options is refused.", advice.stream)
    if stream.prompt is None:
        return Check(name, question, "no", "A stream ends without usage.", advice.stream)
    if whole.reused is not None and stream.reused is None:
        return Check(name, question, "no", "A stream's usage leaves out cached tokens.", advice.stream)
    if (whole.prompt, whole.reused) != (stream.prompt, stream.reused):
        detail = f"Whole: {_said(whole)}; streamed: {_said(stream)}, for the same prompt."
        return Check(name, question, "no", detail, "Count either streams or whole answers, and not both.")
    return Check(name, question, "yes", f"{_said(stream)} either way.")


def check_block_size(found: BlockSize) -> Check:
    """In which steps does it reuse?"""
    name, question = "block_size", "In blocks of how many tokens does it reuse?"
    if found.tokens is None:
        return Check(
            name, question, "unknown", "No prompt that shares a part hit: only repeats, or bigger blocks."
        )
    if found.irregular:
        detail = f"Hits are multiples of {found.tokens}, but fall short of what is shared by more than that."
        return Check(
            name, question, "unknown", f"{detail} Other traffic, or an eviction, may have come between."
        )
    if not found.proven:
        return Check(name, question, "yes", f"{found.tokens}, or a part of that.")
    every = "every token" if found.tokens == 1 else f"blocks of {found.tokens} tokens"
    return Check(name, question, "yes", f"{every.capitalize()}.")


def check_salt(fresh: Told, same: Told, other: Told, none: Told) -> Check:
    """Do prompts under one salt stay unseen by another, and by none?"""
    name, question = "salt", SALT
    if same.reused is None or other.reused is None or none.reused is None:
        return Check(name, question, "unknown", "It did not say.")
    if same.reused <= (fresh.reused or 0):
        return Check(name, question, "unknown", "A salted prompt does not hit even under its own salt.")
    detail = f"Own salt {same.reused:,}, another's {other.reused:,}, none {none.reused:,} tokens reused."
    # Without a salt a prompt hits what the template puts in front of all prompts, which is far less than half.
    if max(other.reused, none.reused) * 2 > same.reused:
        return Check(
            name, question, "no", detail, "Use a version that takes cache_salt, or an engine a tenant."
        )
    return Check(name, question, "yes", detail)


def _said(told: Told) -> str:
    reused = "not reported" if told.reused is None else f"{told.reused:,}"
    return f"{reused} of {told.prompt:,} tokens" if told.prompt is not None else reused


def _speed_hint(cold: Told, warm: Told) -> str:
    if warm.seconds > cold.seconds * _FASTER:
        return ""
    return f" Yet it took {warm.seconds / cold.seconds:.0%} of the first time, so it may well hit."
