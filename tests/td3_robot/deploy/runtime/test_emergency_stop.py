"""How an operator stops an arm: nothing but a wish comes of it, so that the loop can brake."""

import os
import signal
import sys

import pytest

from td3_robot.deploy.runtime.emergency_stop import SIGNALS, make_stop_poll


@pytest.fixture(autouse=True)
def handlers_as_before():
    before = {name: signal.getsignal(getattr(signal, name)) for name in SIGNALS}
    yield
    for name, handler in before.items():
        signal.signal(getattr(signal, name), handler)


@pytest.fixture
def typed(monkeypatch):
    """What is written to it is typed."""
    read, write = os.pipe()
    with os.fdopen(read) as stdin, os.fdopen(write, "wb", buffering=0) as keyboard:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield keyboard


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_is_a_wish(name, typed):
    pressed = make_stop_poll()
    assert not pressed()
    os.kill(os.getpid(), getattr(signal, name))
    assert pressed() and pressed()


def test_enter_is_one_and_other_keys_are_none(typed):
    pressed = make_stop_poll()
    typed.write(b"abc")
    assert not pressed()
    typed.write(b"d\n")
    assert pressed()


def test_where_nobody_can_type_signals_are_heard_all_the_same(typed, monkeypatch):
    pressed = make_stop_poll()
    typed.close()  # the end of what is typed
    assert not pressed() and not pressed()
    monkeypatch.setattr(sys, "stdin", None)  # as a service has it
    pressed = make_stop_poll()
    assert not pressed()
    os.kill(os.getpid(), signal.SIGTERM)
    assert pressed()
