"""What goes wrong: files and settings that cannot be used, and requests to stop."""


class TersenseError(ValueError):
    """Say in one line what came, what is allowed and what to do.

    What came may hold line breaks, or characters that a terminal would obey: they become spaces.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__("".join(c if c.isprintable() else " " for c in message))


class AlreadyToldError(TersenseError):
    """An error that the first of several processes tells."""


class Interrupted(KeyboardInterrupt):
    """A long work was asked to stop, and did so in good order.

    Args:
        number: Of the signal that asked.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by signal {number}")
        self.number = number


def one_line(error: BaseException) -> str:
    """Return what an error says, short and without line breaks."""
    text = " ".join(str(error).split())
    return text[:300] or type(error).__name__
