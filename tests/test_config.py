"""goodput.toml: where it is found and what it may hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest import config
from loadtest.errors import UsageError

COMMANDS = ("run", "report")


def read(tmp_path: Path, text: str) -> config.Document:
    path = tmp_path / "goodput.toml"
    path.write_text(text)
    return config.read_file(path, COMMANDS)


def test_the_variable_names_the_file_before_the_folder_does(tmp_path: Path) -> None:
    """GOODPUT_CONFIG wins; then goodput.toml of the folder; else there is none."""
    assert config.find_file(tmp_path, {}) is None
    (tmp_path / "goodput.toml").touch()
    assert tmp_path / "goodput.toml" == config.find_file(tmp_path, {})
    assert Path("/x.toml") == config.find_file(tmp_path, {"GOODPUT_CONFIG": "/x.toml"})


def test_settings_of_one_command(tmp_path: Path) -> None:
    """Only the command's own table counts; dashes become underscores."""
    document = read(tmp_path, '[run]\nmax-lateness = "1s"\n[report]\nformat_ = "text"\n')
    assert {"max_lateness": "1s"} == config.settings_of(Path("f"), document, "run", ["max_lateness", "rate"])
    assert {} == config.settings_of(Path("f"), {}, "run", ["rate"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rate = 4", "outside a table"),
        ("[rn]\nrate = 4", "did you mean 'run'"),
        ("[run\n", "cannot be read"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """One sentence, with the file's name."""
    with pytest.raises(UsageError, match=said) as caught:
        read(tmp_path, text)
    assert "goodput.toml" in caught.value.message


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """A file that GOODPUT_CONFIG names must be there."""
    with pytest.raises(UsageError, match="cannot be read"):
        config.read_file(tmp_path / "none.toml", COMMANDS)


def test_variables_of_options() -> None:
    """One rule for all options."""
    assert "GOODPUT_MAX_IN_FLIGHT" == config.variable_of("max_in_flight")
