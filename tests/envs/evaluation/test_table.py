"""The table on the terminal."""

from envs.evaluation.table import print_rows


def test_many_controllers_are_whole_on_a_narrow_terminal(monkeypatch, capsys):
    """Headings and figures, which would be others if they were cut; labels in all their words."""
    monkeypatch.setenv("COLUMNS", "60")
    headings = [f"run_with_a_name_{number}" for number in range(9)]
    figures = [f"{-1000.5 - number:.2f}" for number in range(9)]
    print_rows("", headings, [("final error, 95th percentile [mm]", figures)])
    lines = [line.replace("┃", "│").split("│") for line in capsys.readouterr().out.splitlines()]
    heading, first, *rest = ([cell.strip() for cell in row[1:-1]] for row in lines if len(row) > 1)
    assert heading == ["", *headings] and first[1:] == figures
    words = " ".join(row[0] for row in (first, *rest))
    assert words == "final error, 95th percentile [mm]"
