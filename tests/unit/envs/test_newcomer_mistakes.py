"""What somebody writes on the first day: each mistake is named where it was made, with what was expected."""

from __future__ import annotations

import inspect
import threading
from pathlib import Path
from typing import ClassVar

import gymnasium
import numpy as np
import pytest

import hyperrl
from hyperrl.envs import (
    Endpoint,
    JsonlTaskset,
    Judge,
    ProceduralTaskset,
    RewardModel,
    ScriptedUser,
    Task,
    TextEnv,
    check_env_contract,
    make_env,
    reward,
    tool,
)
from hyperrl.envs.author_code import describe_raised, where_raised
from hyperrl.envs.grading import AnswerPolicy, CallTest, grade_answer, grade_code
from hyperrl.envs.sandbox import make_sandbox
from hyperrl.envs.spaces import Unicode
from hyperrl.errors import (
    ConfigError,
    EnvError,
    MissingExtraError,
    RewardDefinitionError,
    ToolDefinitionError,
)


class Easy(TextEnv):
    """Say yes."""

    def tasks(self):
        return [{"n": str(i) + self.split} for i in range(6)]

    def start(self, task):
        return f"What goes with {task['n']}?"

    @reward
    def right(self, task, answer):
        return answer == f"it is {task['n']}!"

    def gold(self, task):
        return f"it is {task['n']}!"


def with_tasks(given):
    class Given(Easy):
        def tasks(self):
            return given

    return Given()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["a"], r"data of task '0' must be a mapping .* got 'a' \(str\)"),
        ([{"n": 1}, None], r"data of task '1' must be a mapping"),
        ([["n", 1]], "must be a mapping"),
        ({"train": [{"n": 1}]}, "a list of tasks, got dict"),
        (np.array([{"n": 1}]), r"ndarray whose items are no Task but dict; .* return list\(\.\.\.\)"),
        ([Task("a", {"n": 1}), Task("a", {"n": 2})], "2 tasks have the id 'a'"),
        (ProceduralTaskset(lambda rng: 3, count=2, seed=0), "must be a mapping .* got 3"),
    ],
)
def test_tasks_that_are_none_are_refused_with_what_they_are(given, message):
    with pytest.raises(EnvError, match=message):
        with_tasks(given).reset(seed=0)


def test_a_task_needs_fields():
    with pytest.raises(EnvError, match="data of task 'a' must be a mapping"):
        Task("a", "a question")


def test_one_column_is_no_list_of_columns(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"question": 1}\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"such as \['question'\]; got 'question'"):
        JsonlTaskset(tmp_path / "a.jsonl", columns="question")


def test_a_name_is_no_argument_of_the_decorators():
    with pytest.raises(ToolDefinitionError, match=r"got 'look'; a name is given as @tool\(name=...\)"):
        tool("look")
    with pytest.raises(RewardDefinitionError, match=r"got 'right'; a name is given as @reward\(name=...\)"):
        reward("right")


def test_a_split_may_be_anything_wrong():
    with pytest.raises(ConfigError, match="has no split None; it has train, test"):
        Easy(split=None)


@pytest.mark.parametrize("offered", [None, "look", 3])
def test_offered_tools_must_be_a_list(offered):
    class Offering(Easy):
        def offered_tools(self):
            return offered

    with pytest.raises(EnvError, match=r"Offering.offered_tools must return a list of names and tools, got"):
        Offering().reset()


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ({"role": "usr", "content": "hi"}, "role 'usr'; usual are .* Did you mean 'user'"),
        ({"role": 3, "content": "hi"}, "role 3"),
        ({"role": "user"}, "without a text"),
        ({"role": "user", "content": None}, "without a text"),
    ],
)
def test_messages_that_no_template_shows_are_refused(message, error):
    class Saying(Easy):
        def start(self):
            return [message]

    with pytest.raises(EnvError, match=f"Saying.start returned a message .*{error}"):
        Saying().reset()


def test_roles_of_a_template_of_its_own_and_calls_without_a_text_may_be_said():
    calls = [{"function": {"name": "look", "arguments": {}}, "type": "function"}]

    class Saying(Easy):
        def start(self):
            said = [{"role": "observer", "content": "hi"}, {"role": "assistant", "tool_calls": calls}]
            return [*said, {"role": "user", "content": [{"type": "text", "text": "go"}]}]

    assert Saying().reset()[0].endswith("go")


def raise_in_helper():
    raise KeyError("lost")


def test_an_exception_says_where_the_author_has_to_look():
    class Buggy(Easy):
        def start(self):
            raise_in_helper()

    with pytest.raises(KeyError) as caught:
        Buggy().reset()
    line = inspect.getsourcelines(raise_in_helper)[1] + 1
    assert where_raised(caught.value) == f" (test_newcomer_mistakes.py, line {line}, in raise_in_helper)"
    assert describe_raised(caught.value) == f"KeyError: 'lost'{where_raised(caught.value)}"
    assert where_raised(KeyError("never raised")) == ""
    with pytest.raises(ConfigError) as refused:
        Easy(split="dev")
    assert describe_raised(refused.value) == f"ConfigError: {refused.value}"  # says itself what is wrong


def test_what_hyperrl_itself_called_wrongly_is_no_author_s_fault():
    source = "import numpy\nnumpy.array_split(numpy.zeros(3), 0)"
    ours = compile(source, str(Path(hyperrl.__file__).parent / "arrays.py"), "exec")
    with pytest.raises(ValueError, match="larger than 0") as caught:
        exec(ours)
    trace = caught.value.__traceback__
    assert trace is not None
    assert where_raised(caught.value.with_traceback(trace.tb_next)) == ""


class Lister(Easy):
    """Lists the choices."""

    shows_answer: ClassVar[bool] = True

    def start(self, task):
        return f"Is it: it is {task['n']}! or: it is nothing!"


class Done(Easy):
    """Ends with a word that all tasks share."""

    def start(self, task):
        self.said = ""
        return f"Say it is {task['n'][::-1]}! backwards, then say done."

    def reply(self, answer, turn):
        self.said = answer if turn == 0 else self.said
        return "and?" if turn == 0 else None

    @reward
    def right(self, task, answer):
        return self.said == task["n"] and answer == "done"

    def gold(self, task):
        return [task["n"], "done"]


class Holding(Easy):
    """Holds a lock."""

    def start(self, task):
        self.lock = threading.Lock()  # cannot be pickled, locked or not
        self.resources.enter_context(self.lock)
        return f"What goes with {task['n']}?"


class Broken(Easy):
    """Never begins."""

    def start(self, task):
        return task["question"]


class Extra(Easy):
    """Needs a package in its episodes only."""

    def start(self):
        raise MissingExtraError("nowhere", "nothing")


def checked(cls):
    gymnasium.register(f"newcomer/{cls.__name__}-v0", entry_point=cls)
    try:
        return check_env_contract(f"newcomer/{cls.__name__}-v0")
    finally:
        del gymnasium.registry[f"newcomer/{cls.__name__}-v0"]


def test_an_answer_among_choices_is_given_away_only_where_nobody_says_that_it_may_be():
    class Leaky(Lister):
        """Says nothing."""

        shows_answer: ClassVar[bool] = False

    (leak,) = (check for check in checked(Leaky).checks if check.name == "gold is not given away")
    assert (leak.status, "set shows_answer = True" in leak.detail) == ("fail", True)
    (leak,) = (check for check in checked(Lister).checks if check.name == "gold is not given away")
    assert leak.status == "skip"


def test_a_word_that_ends_every_task_gives_nothing_away():
    report = checked(Done)
    (leak,) = (check for check in report.checks if check.name == "gold is not given away")
    assert (leak.status, leak.detail) == ("pass", "6 tasks, all with the same last gold")


def test_an_environment_that_holds_something_open_is_copied_between_episodes():
    assert checked(Holding).failures == ()


def test_where_no_episode_begins_that_is_the_one_finding():
    (found,) = checked(Broken).checks
    assert (found.name, found.status) == ("an episode begins", "fail")
    assert "has no field 'question'" in found.detail
    assert "(test_newcomer_mistakes.py, line" in found.detail


def test_a_missing_extra_of_an_episode_is_no_finding_but_what_to_install():
    with pytest.raises(MissingExtraError, match=r"pip install 'hyperrl\[nothing\]'"):
        checked(Extra)


def test_an_observation_beyond_its_space_is_measured():
    class Long(Easy):
        """Talks too much."""

        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.observation_space = Unicode(8)

    found = checked(Long).checks[0]
    assert (found.name, found.status) == ("gymnasium", "fail")
    assert "has 22 characters, more than Unicode(max_length=8); shorten it" in found.detail


def failing(cls):
    return {check.name: check.detail for check in checked(cls).failures}


@pytest.mark.parametrize("gold", [5, [], [1, 2], {"a": 1}])
def test_a_gold_that_is_no_action_is_named(gold):
    class Golden(Easy):
        """Its gold is no text."""

        def gold(self, task):
            return gold

    found = failing(Golden)
    del found["pickle keeps it"]  # a class in a function cannot be pickled
    assert set(found) <= {
        "gold reaches the declared score",
        "wrong stays under the floor",
        "attacks stay under the floor",
        "reset leaves no trace",
        "gold is not given away",
    }
    said = "EnvError: Golden.gold must return an action, a list of at least one, or None"
    assert all(detail.startswith(said) for detail in found.values())


def test_what_is_not_awaited_is_told_to_be_plain():
    class Waiting(Easy):
        """Waits."""

        async def gold(self, task):
            return "x"

        async def tasks(self):
            return []

    with pytest.raises(EnvError, match="with def, not async def"):
        Waiting().reset()


def test_methods_of_gymnasium_are_not_for_authors():
    with pytest.raises(EnvError, match="Own defines step, which belongs to TextEnv; write start and reply"):
        type("Own", (Easy,), {"step": lambda self, action: None})
    with pytest.raises(EnvError, match=r"Own.splits must be a tuple of names, such as \('train',\)"):
        type("Own", (Easy,), {"splits": "train"})


def test_an_init_that_keeps_its_arguments_to_itself_is_told_so():
    class Selfish(Easy):
        def __init__(self, level=1):
            super().__init__()

    class Orphan(Easy):
        def __init__(self, split="train"):
            self.split = split

    for cls in (Selfish, Orphan):
        gymnasium.register(f"newcomer/{cls.__name__}-v0", entry_point=cls)
    try:
        with pytest.raises(ConfigError, match=r"its __init__ must take \*\*kwargs and pass them on"):
            make_env("newcomer/Selfish-v0", split="test")
        with pytest.raises(EnvError, match=r"Orphan.__init__ must take \*\*kwargs and first call"):
            make_env("newcomer/Orphan-v0")
    finally:
        for cls in (Selfish, Orphan):
            del gymnasium.registry[f"newcomer/{cls.__name__}-v0"]


HERE = Endpoint("http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("slip", "message"),
    [
        (lambda: grade_answer("\\boxed{1}", 1), r"the gold must be a str, got 1 \(int\)"),
        (lambda: grade_answer(None, "1"), r"the response must be a str, got None"),
        (lambda: AnswerPolicy(percent="numbr"), "percent must be one of .* Did you mean 'number'"),
        (lambda: AnswerPolicy(tolerance=-1), "tolerance must be at least 0, got -1"),
        (lambda: CallTest(args="ab", expected=1), r"must be a list, such as \[1, 2\]; got 'ab'"),
        (lambda: CallTest(args=1, expected=1), "must be a list"),
        (
            lambda: grade_code("def f(): pass", [([1], 1)], entry_point="f"),
            "a test is a CallTest or a CodeTest",
        ),
        (lambda: ScriptedUser("hello"), "a script is a list of messages or a function, got 'hello'"),
        (lambda: ScriptedUser([1]), "a list of messages"),
        (lambda: Endpoint(None), "base_url must begin with http"),
        (lambda: Judge(endpoint="http://x", model="m", rubric="r"), r"write Endpoint\('http://x'\)"),
        (lambda: RewardModel(endpoint="http://x", model="m"), r"write Endpoint\('http://x'\)"),
        (lambda: Judge(endpoint=HERE, model="m", rubric="r", scale=10), r"\(lowest, highest\), .* got 10"),
        (lambda: make_sandbox(3), "there is no sandbox level 3"),
    ],
)
def test_what_is_no_text_list_or_endpoint_is_refused_at_once(slip, message):
    with pytest.raises(ConfigError, match=message):
        slip()
