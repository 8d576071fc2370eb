"""Files of graded examples."""

import json

import pytest

from hyperrl.envs.grading.case_file import GradingCase, load_cases
from hyperrl.errors import DataError

ROW = {"id": "one", "response": "It is \\boxed{1/2}.", "gold": "0.5", "expected": True, "family": "boxed"}


def test_rows_are_read_and_other_keys_passed_over(tmp_path):
    path = tmp_path / "cases.json"
    path.write_text(json.dumps([ROW | {"note": 1}]), encoding="utf-8")
    case = GradingCase(case_id="one", response=ROW["response"], gold="0.5", expected=True, style="boxed")
    assert load_cases(path) == (case,)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1, 2", "is not JSON"),
        (f"{json.dumps(ROW)}\n{json.dumps(ROW)}\n", "one list holds all rows, not one line each"),
        ("[" * 100_000, "is not JSON"),
        ({"rows": []}, "must hold a JSON list with at least one row, found dict"),
        ([], "found an empty list"),
        ([ROW, 7], "row 1 must be an object, found 7"),
        ([ROW | {"id": 3}], "row 0 (id 3): 'id' must be a string, found 3"),
        ([{"id": "x", "respons": "1"}], "family. Did you mean 'respons'?"),
        ([{k: v for k, v in ROW.items() if k != "gold"}], "row 0 (id 'one') lacks the key 'gold'"),
        ([ROW | {"expected": 1}], "'expected' must be true or false, found 1"),
        ([ROW | {"family": "boxd"}], "found 'boxd'. Did you mean 'boxed'?"),
        ([ROW, ROW], "two rows with the id 'one'"),
    ],
)
def test_bad_input_is_named(content, message, tmp_path):
    path = tmp_path / "cases.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    with pytest.raises(DataError) as refused:
        load_cases(path)
    assert message in str(refused.value)
    assert str(refused.value).startswith(str(path))


def test_what_is_no_text_or_no_file_is_refused(tmp_path):
    path = tmp_path / "cases.json"
    path.write_bytes(b"\xff\xfe[")
    with pytest.raises(DataError, match="is not JSON in UTF-8"):
        load_cases(path)
    with pytest.raises(DataError, match="cannot be read"):
        load_cases(tmp_path)


def test_a_file_that_windows_wrote_is_read(tmp_path):
    path = tmp_path / "cases.json"
    path.write_text(json.dumps([ROW], indent=1), encoding="utf-8-sig", newline="\r\n")
    assert [case.case_id for case in load_cases(path)] == [ROW["id"]]
