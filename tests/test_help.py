"""--help and --help-all of every command: short, in groups, and with examples that work."""

import re
import shlex

import pytest

from td3_robot.commands.main import describe_commands
from td3_robot.utils.console import SCRIPTS
from tests.support import load_command, make_command_schema

COMMANDS = list(SCRIPTS.values())


def show_help(script: str, word: str, capsys) -> str:
    with pytest.raises(SystemExit) as caught:
        load_command(script.removesuffix(".py")).main([word])
    assert caught.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("script", COMMANDS)
def test_help_is_short_and_its_examples_are_commands_that_work(script, capsys):
    text = show_help(script, "--help", capsys)
    assert 3 <= len(re.findall(r"^  --", text, re.MULTILINE)) <= 25
    examples = re.findall(rf"^  python {re.escape(script)} (.*)$", text, re.MULTILINE)
    assert len(examples) == 3
    for words in examples:
        assert make_command_schema(script).read_flags(shlex.split(words))
    assert text.index("examples:") < text.index("  --")


@pytest.mark.parametrize("script", COMMANDS)
def test_the_whole_help_has_every_option_once_under_a_heading_with_a_sentence(script, capsys):
    text = show_help(script, "--help-all", capsys)
    schema = make_command_schema(script)
    shown = re.findall(r"^  --([\w.]+)", text, re.MULTILINE)
    assert sorted(shown) == sorted(schema.options)
    for group in schema.groups:
        if group.options:
            assert f"{group.title}:\n  {group.text.split()[0]}" in text
            assert group.text.endswith(".") and len(group.text.split()) > 5, group.title
            assert not group.title.startswith("The ")


@pytest.mark.parametrize("script", ["train.py", "evaluate.py"])
def test_disturbances_have_a_group_of_their_own(script):
    groups = {group.title: group for group in make_command_schema(script).groups}
    names = [option.name for option in groups["Disturbances (robots only)"].options]
    assert names[:4] == ["latency", "latency_spread", "servo_lag", "noise"] and len(names) > 10
    assert not any("robots only" in option.text for option in schema_options(script))


def schema_options(script: str) -> list:
    return [option for group in make_command_schema(script).groups for option in group.options]


# Words that only this project used; the pages and error messages have others.
PRIVATE = r"in place of|anew|at once|heed|told|beside |learnt|of today|of before|one's own"


@pytest.mark.parametrize("script", COMMANDS)
def test_the_sentences_are_plain_english(script):
    for option in schema_options(script):
        assert option.text.endswith(".") and len(option.text) > 15, option.name
        assert not re.search(PRIVATE, option.text), (option.name, option.text)
        assert all(len(part.split()) <= 45 for part in option.text.split(". ")), option.name


def test_the_help_of_td3_robot_has_each_command_and_three_examples_that_work(capsys):
    assert describe_commands(["--help"]) == 0
    text = capsys.readouterr().out
    examples = [shlex.split(words) for words in re.findall(r"^  td3-robot (.*)$", text, re.M)]
    assert len(examples) == 3
    for command, *words in examples:
        assert make_command_schema(SCRIPTS[command]).read_flags(words)
    assert set(re.findall(r"^  (\w+) ", text.split("commands:")[1], re.M)) == {*SCRIPTS}
