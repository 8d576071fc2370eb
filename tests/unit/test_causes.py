import pytest

from hyperrl.causes import CAUSES, cause_of, count_causes
from hyperrl.trajectory import Event, Failure, RewardTerm, ToolRecord, Trajectory, TruncationReason


def term(score=None, *, kind="", weight=1.0, cause=None, name="r"):
    error = Failure(kind=kind, stage="reward", reason="x") if kind else None
    return RewardTerm(name=name, score=score, weight=weight, cause=cause, error=error)


def episode(*terms, tools=(), **fields):
    calls = tuple(ToolRecord(call_id="c", name="t", arguments="", status=s, result="") for s in tools)
    return Trajectory(
        run_id="r",
        group_id=(0, 0),
        sample_index=0,
        task_id="t",
        env_id="e",
        events=(Event(turn=None, observation="", tool_calls=calls),),
        reward_terms=terms,
        **fields,
    )


OUT_OF_TIME = {"truncated": True, "truncation_reason": TruncationReason.WALL_CLOCK}
OUT_OF_TOKENS = {"truncated": True, "truncation_reason": TruncationReason.MAX_TOKENS}
CASES = [
    (episode(term(1.0)), "right"),
    (episode(term(1.0), tools=["error"]), "right"),
    (episode(term(1.0), **OUT_OF_TIME), "right"),
    (episode(term(0.0)), "wrong"),
    (episode(term(0.0), **OUT_OF_TOKENS), "wrong"),
    (episode(term(0.0, cause="my own word")), "wrong"),
    (episode(term(0.0, cause="unparsed")), "unparsed"),
    (episode(term(0.0, cause="excluded")), "wrong"),
    (episode(term(0.0, cause="timeout")), "timeout"),
    (episode(term(0.0, cause="unparsed"), term(0.0, cause="wrong")), "wrong"),
    (episode(term(0.0, cause="unparsed"), term(0.0, cause="my own word")), "unparsed"),
    (episode(term(0.0, cause="unparsed", weight=0.0), term(0.0)), "wrong"),
    (episode(term(0.0, cause="unparsed"), **OUT_OF_TIME), "timeout"),
    (episode(term(0.0), tools=["ok", "error"]), "tool_failure"),
    (episode(term(0.0), tools=["timeout"]), "tool_failure"),
    (episode(term(0.0), tools=["error", "ok"]), "wrong"),
    (episode(term(0.0), tools=["bad_arguments"]), "wrong"),
    (episode(), "unscored"),
    (episode(term(kind="reward_error")), "unscored"),
    (episode(term(kind="reward_error"), term(kind="judge_failure")), "judge_failure"),
    (episode(term(kind="reward_timeout")), "timeout"),
    (episode(term(kind="scorer_timeout")), "timeout"),
    (episode(term(kind="tool_failure")), "tool_failure"),
    (episode(term(1.0), term(kind="judge_failure", weight=0.0)), "right"),
    (episode(term(1.0), term(kind="excluded", weight=0.0)), "excluded"),
    (episode(term(kind="judge_failure"), term(kind="excluded")), "excluded"),
    (episode(failure=Failure(kind="step_error", stage="step", reason="x")), "failed"),
    (episode(failure=Failure(kind="tool_timeout", stage="tool", reason="x")), "tool_failure"),
]


@pytest.mark.parametrize(("trajectory", "cause"), CASES)
def test_every_episode_has_one_cause(trajectory, cause):
    assert cause_of(trajectory) == cause
    assert cause in CAUSES


def test_counts_add_up_and_follow_the_order_of_the_table():
    counts = count_causes(trajectory for trajectory, _ in CASES)
    assert sum(counts.values()) == len(CASES)
    assert list(counts) == [cause for cause in CAUSES if cause in counts]
    assert set(counts) == {cause for _, cause in CASES}


def test_success_may_be_less_than_one():
    assert cause_of(episode(term(0.5)), success=0.5) == "right"


def test_an_excluded_episode_is_not_used_whatever_its_reward():
    excluded = episode(term(1.0), term(kind="excluded", weight=0.0))
    assert excluded.reward == 1.0
    assert not excluded.usable
    assert excluded.excluded.reason == "x"
