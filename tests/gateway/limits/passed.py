"""What certainly passed within one minute, however slow the machine is: between its ask and its answer each did."""

from dataclasses import dataclass, field

MINUTE_S = 60.0


@dataclass(slots=True)
class Passed:
    """When each request that passed was asked and answered, seconds of one clock."""

    times: list[tuple[float, float]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.times)

    def add(self, asked: float, answered: float) -> None:
        self.times.append((asked, answered))

    def most_in_a_minute(self) -> int:
        """The most that certainly passed within one minute: no more than the limit where it is kept."""
        return max(
            (
                sum(begin <= asked and answered <= begin + MINUTE_S for asked, answered in self.times)
                for begin, _ in self.times
            ),
            default=0,
        )

    def before(self, answered: float) -> int:
        """How many certainly passed within the minute before one that was answered then."""
        return sum(answered - MINUTE_S <= asked and done <= answered for asked, done in self.times)
