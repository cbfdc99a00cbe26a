"""A signal ends the program wherever it finds it."""

import signal
import threading
import weakref

import pytest

from tersense.runtime.signals import leave


@pytest.fixture
def handled():
    before = signal.signal(signal.SIGTERM, leave)
    yield
    signal.signal(signal.SIGTERM, before)


def test_a_signal_is_an_exit_with_its_number(handled):
    with pytest.raises(SystemExit) as stopped:
        signal.raise_signal(signal.SIGTERM)
    assert stopped.value.code == 143


def test_a_signal_in_a_callback_of_the_import_system_is_not_lost(handled, capfd):
    names = {"signal": signal}
    exec(  # as if it were there
        compile(
            "def callback(reference): signal.raise_signal(signal.SIGTERM)",
            "<frozen importlib._bootstrap>",
            "exec",
        ),
        names,
    )

    def drop_something_and_wait():
        thing = threading.Event()
        reference = weakref.ref(thing, names["callback"])
        del thing
        threading.Event().wait(10)
        return reference

    with pytest.raises(SystemExit) as stopped:
        drop_something_and_wait()
    assert stopped.value.code == 143
    assert capfd.readouterr().err == ""
