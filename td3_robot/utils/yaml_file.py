"""Read and write YAML files of options, with the numbers of YAML 1.2."""

import re
import reprlib
from pathlib import Path

import yaml
from yaml.scanner import ScannerError

from td3_robot.errors import ConfigError
from td3_robot.utils.atomic_files import replace_file


class _Loader(yaml.SafeLoader):
    """A loader of plain values without tags and duplicate keys; 1e6 is a number, and 010 is ten."""

    yaml_implicit_resolvers = {}  # not PyYAML's: dates, octals, base 60, yes and no

    def fetch_tag(self):
        raise ScannerError(None, None, "tags, which begin with !, are not taken", self.get_mark())

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            if (name := str(key.value)) in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{name!r} is there twice", key.start_mark
                )
            seen.add(name)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """A dumper that quotes any text that a loader would take for another type."""


_Dumper.add_representer(tuple, _Dumper.represent_list)
_Dumper.add_multi_representer(Path, lambda dumper, path: dumper.represent_str(str(path)))
for _tag, _pattern, _first in (
    ("null", "~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", "true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", "[-+]?(0|[1-9][0-9_]*)", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", list("-+.")),
):
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(
            f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first
        )


def parse_yaml(text: str) -> object:
    """Parse a text as YAML.

    Raises:
        yaml.YAMLError, ValueError, RecursionError: it is no YAML.
    """
    return yaml.load(text, _Loader)


def read_mapping(path: Path) -> dict:
    """Read the mapping in a YAML file; an empty file gives an empty one.

    Raises:
        ConfigError: it cannot be read, does not parse, or is no mapping.
    """
    try:
        content = parse_yaml(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}") from error
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ConfigError(f"{line}{error.problem}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"is no YAML: {' '.join(str(error).split())}") from error
    if content is not None and not isinstance(content, dict):
        raise ConfigError(f"must be a mapping of options to values, got {reprlib.repr(content)}")
    return content or {}


def write_yaml(content: dict, path: Path) -> None:
    """Write nested options as plain YAML, atomically; `Schema.read_file` reads them.

    Raises:
        ConfigError: the file cannot be written.
    """
    with replace_file(path) as new:
        new.write_text(yaml.dump(content, Dumper=_Dumper, sort_keys=False), encoding="utf-8")
