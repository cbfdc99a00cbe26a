"""The one exception for files and configurations that cannot be used."""


class TersenseError(ValueError):
    """Say in one line what came, what is allowed and what to do.

    What came may hold line breaks, or characters that a terminal would obey: they become spaces.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__("".join(c if c.isprintable() else " " for c in message))


def one_line(error: BaseException) -> str:
    """Return what an error says, short and without line breaks."""
    text = " ".join(str(error).split())
    return text[:300] or type(error).__name__
