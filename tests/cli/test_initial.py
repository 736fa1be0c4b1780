"""Values that `--initial` refuses, since a garbled initial value would convict a correct target."""

import pytest

from harness.cli import main
from harness.errors import EXIT_INVALID, EXIT_USAGE, EXIT_VALID

READ = "1 :invoke :read nil\n1 :ok :read %s\n1 :invoke :write 1\n1 :ok :write 1\n"
GOT = '1 :invoke :get ["a" nil]\n1 :ok :get ["a" "q"]\n'


def checked(tmp_path, text, initial):
    path = tmp_path / "history.txt"
    path.write_text(text)
    return main(["check", str(path), "--initial", initial])


@pytest.mark.parametrize("initial", ["five", "{x 1}", "{:x five}"])
def test_a_symbol_is_refused_and_the_way_out_is_named(initial, tmp_path, capsys):
    assert checked(tmp_path, READ % '"five"', initial) == EXIT_USAGE
    assert "is a symbol of EDN; a string has quotes" in capsys.readouterr().err
    assert checked(tmp_path, READ % '"five"', '"five"') == EXIT_VALID
    assert checked(tmp_path, READ % ":five", ":five") == EXIT_VALID


@pytest.mark.parametrize("initial", ["NaN", "##NaN", "Infinity", '{"x": ##NaN}'])
def test_a_value_unequal_to_itself_is_no_initial_value(initial, tmp_path, capsys):
    assert checked(tmp_path, READ % "5", initial) == EXIT_USAGE


@pytest.mark.parametrize("initial", [":q", "0.1M", '{"a" :q}'])
def test_a_keyword_is_no_string(initial, tmp_path, capsys):
    assert checked(tmp_path, GOT, initial) == EXIT_USAGE
    assert "holds strings" in capsys.readouterr().err


KEYED = """1 :invoke :read [1 nil]
1 :ok :read [1 5]
1 :invoke :read [:b nil]
1 :ok :read [:b 6]
1 :invoke :read ["c" nil]
1 :ok :read ["c" 7]
1 :invoke :cas [1 [5 1]]
1 :ok :cas [1 [5 1]]
"""


@pytest.mark.parametrize("options", [[], ["--independent"]])
def test_a_map_gives_the_initial_value_of_each_register(options, tmp_path, capsys):
    path = tmp_path / "history.txt"
    path.write_text(KEYED)
    whole = '{1 5, :b 6, "c" 7}'
    assert main(["check", str(path), "--initial", whole, *options]) == EXIT_VALID
    wrong = '{1 5, :b 6, "c" 8}'
    assert main(["check", str(path), "--initial", wrong, *options]) == EXIT_INVALID
    assert "key 'c'" in capsys.readouterr().out
    assert main(["check", str(path), "--initial", "{1 [5]}", *options]) == EXIT_USAGE


def test_a_map_is_no_value_of_one_register(tmp_path, capsys):
    assert checked(tmp_path, READ % "5", "{:x 5}") == EXIT_USAGE
    assert "a map is for [key value] tuples" in capsys.readouterr().err
