"""What goes wrong: files and settings that cannot be used, and requests to stop."""

from pathlib import Path


def visible(text: object) -> str:
    r"""Return a text as one line that no terminal obeys: `\n`, `\x1b` and `\u202e` are spelled out.

    Names of files and models come from anybody; what is printable stays as it is.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


class TersenseError(ValueError):
    """Say in one line what came, what is allowed and what to do.

    What came may hold line breaks, or characters that a terminal would obey: see `visible`.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(visible(message))


class TersenseWarning(UserWarning):
    """Something was done that the user may not have meant; said in one line, as errors are."""

    def __init__(self, message: str = "") -> None:
        super().__init__(visible(message))


class AlreadyToldError(TersenseError):
    """An error that the first of several processes tells."""


class Interrupted(KeyboardInterrupt):
    """Long-running work was asked to stop, and did so in good order.

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


def install_hint(extra: str) -> str:
    """Return the command that installs an extra: in a clone, that of its own environment."""
    if (Path(__file__).parents[2] / "pyproject.toml").is_file():
        return f".venv/bin/pip install -c constraints.txt -e '.[{extra}]'"
    return f"pip install 'tersense[{extra}]'"
