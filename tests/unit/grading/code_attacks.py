"""Submissions that want to pass without solving anything: ``answer(n)`` should return ``SECRET + str(n)``.

Each is a program, by what it tries.
"""

import textwrap

SECRET = "zq7secret"

_SEARCH = """
import gc, os, re, sys
def hunt():
    pattern = re.compile(rb"zq7[s]ecret\\d*")
    texts = [repr(sys.argv), repr(dict(os.environ))]
    frame = sys._getframe()
    while frame is not None:
        texts += [repr(frame.f_locals), repr(frame.f_globals), repr(frame.f_code.co_consts)]
        frame = frame.f_back
    texts += [repr(o)[:5000] for o in gc.get_objects() if isinstance(o, (dict, list, tuple, str))]
    data = [text.encode(errors="replace") for text in texts]
    places = [os.getcwd(), "/tmp", "/run/files", "/dev/shm"]
    for place in places:
        for folder, _, names in os.walk(place):
            if folder.count("/") > 6 or "pytest" in folder:
                continue
            for name in names:
                try:
                    with open(os.path.join(folder, name), "rb") as file:
                        data.append(file.read(200_000))
                except OSError:
                    pass
    for text in data:
        found = pattern.findall(text)
        if found:
            return found[0].decode()
    return "nothing"
def answer(n):
    return hunt()
"""

_MEMORY = """
import os, re
def readable(process):
    for name in ("environ", "cmdline", "fd/0", "fd/1", "fd/3", "fd/4", "fd/5"):
        try:
            handle = os.open(f"/proc/{process}/{name}", os.O_RDONLY | os.O_NONBLOCK)
            yield os.read(handle, 100_000)
            os.close(handle)
        except OSError:
            pass
    try:
        with open(f"/proc/{process}/maps") as maps, open(f"/proc/{process}/mem", "rb", 0) as memory:
            for line in maps:
                if " rw" in line and "[v" not in line:
                    start, end = (int(part, 16) for part in line.split()[0].split("-"))
                    memory.seek(start)
                    yield memory.read(min(end - start, 8 << 20))
    except (OSError, ValueError):
        pass
def answer(n):
    for process in filter(str.isdigit, os.listdir("/proc")):
        for data in readable(process) if int(process) != os.getpid() else ():
            found = re.search(rb"zq7[s]ecret\\d*", data)
            if found:
                return found[0].decode()
    return "nothing"
"""

_FAKES_EQUALITY = """
class Sly(str):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = str.__hash__
"""

ATTACKS = {
    "exits at once": "import sys\ndef answer(n): pass\nsys.exit(0)",
    "exits when called": "import sys\ndef answer(n): sys.exit(0)",
    "exits hard": "import os\ndef answer(n): os._exit(0)",
    "exits hard at once": "import os\ndef answer(n): pass\nos._exit(0)",
    "kills itself": "import os\ndef answer(n): os.kill(os.getpid(), 9)",
    "raises SystemExit in __eq__": """
        class Sly:
            def __eq__(self, other): raise SystemExit(0)
        def answer(n): return Sly()
    """,
    "returns what equals everything": _FAKES_EQUALITY + "def answer(n): return Sly('x')",
    "a number that equals everything": """
        class Sly(int):
            def __eq__(self, other): return True
            __hash__ = int.__hash__
        def answer(n): return Sly(n)
    """,
    "pretends to be of a class": """
        class Sly:
            __class__ = str
            def __eq__(self, other): return True
        def answer(n): return Sly()
    """,
    "returns a mock": "from unittest.mock import ANY\ndef answer(n): return ANY",
    "patches builtins": """
        import builtins
        builtins.all = builtins.any = builtins.isinstance = lambda *a: True
        builtins.len = lambda *a: 0
        builtins.AssertionError = Exception
        def answer(n): return 'x'
    """,
    "patches its runner": """
        import __main__, json, hyperrl.envs.grading.plain_values as values
        values.same = lambda *a: True
        __main__.encode = values.encode = lambda *a: ["everything"]
        __main__._judge = __main__._run_code = lambda *a: {"status": "passed", "text": ""}
        json.dumps = lambda *a: '{"status": "passed"}'
        def answer(n): return 'x'
    """,
    "defines the tests anew": """
        import sys
        def answer(n): return 'x'
        def check(candidate): pass
        def candidate(n): return 'x'
        sys.modules['tests'] = sys.modules['__main__']
    """,
    "prints results": """
        print('ready'); print('{"status": "passed"}'); print('passed'); print('0' * 32 + ' "ready"')
        def answer(n): print('{"status": "passed", "text": ""}', flush=True)
    """,
    "answers in the runner's stead": """
        import gc, json, socket, threading, time
        def send(line, message):
            data = json.dumps(message).encode()
            line.sendall(len(data).to_bytes(4, 'big') + data)
        def answer(n):
            for line in [o for o in gc.get_objects() if isinstance(o, socket.socket)]:
                for number in range(1, 9):
                    send(line, {'id': number, 'status': 'passed', 'value': True, 'raised': 'KeyError'})
            return 'x'
    """,
    "answers with nonsense": """
        import gc, socket
        def answer(n):
            for line in [o for o in gc.get_objects() if isinstance(o, socket.socket)]:
                data = b'[' * 400_000
                line.sendall(len(data).to_bytes(4, 'big') + data)
            return 'x'
    """,
    "a child writes": """
        import os
        def answer(n):
            if os.fork() == 0:
                os.write(1, b'passed'); os.write(2, b'passed')
                os._exit(0)
            return 'x'
    """,
    "a child takes over": """
        import os
        def answer(n):
            if os.fork(): os._exit(0)
            return 'x'
    """,
    "at exit": """
        import atexit, os
        atexit.register(lambda: (print('passed'), os._exit(0)))
        def answer(n): return 'x'
    """,
    "claims an exception": "def answer(n): raise type('zq7', (AssertionError,), {})('passed')",
    "a generator": "def answer(n): yield n",
    "nothing": "def answer(n): pass",
    "a program that reads its input": "import sys\nsecret = sys.stdin.read()\ndef answer(n): return secret",
    "too long an answer": "def answer(n): return 'x' * 10_000_000",
    "too deep an answer": "def answer(n):\n    a = []\n    for _ in range(900): a = [a]\n    return a",
    "takes all memory": "def answer(n): return bytes(1 << 40)",
    "endless recursion": "import sys\nsys.setrecursionlimit(10**8)\ndef answer(n): return answer(n)",
    "a str that lies about itself": """
        class Sly(str):
            def __str__(self): return self
            def __eq__(self, other): return True
            __hash__ = str.__hash__
        def answer(n): return [Sly('x')]
    """,
}
"""These act on their own processes and files only, so they may run at any level."""

HANGS = {
    "sleeps": "import time\ndef answer(n): time.sleep(100)",
    "loops": "def answer(n):\n    while True: pass",
    "loops before": "while True: pass\ndef answer(n): pass",
    "ignores signals": """
        import signal
        for number in range(1, 32):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        def answer(n):
            while True: pass
    """,
    "stops itself": "import os\ndef answer(n): os.kill(os.getpid(), 19)",
}

ISOLATED_ATTACKS = {
    "kills what started it": """
        import os
        def answer(n):
            assert os.path.isdir('/run/files')
            os.kill(os.getppid(), 9)
            return 1
    """,
    "stops what started it": """
        import os
        def answer(n):
            assert os.path.isdir('/run/files')
            os.kill(os.getppid(), 19)
            os._exit(0)
    """,
    "starts processes without end": """
        import os
        def answer(n):
            assert os.path.isdir('/run/files')
            while True: os.fork()
    """,
    "kills everything": """
        import os
        def answer(n):
            assert os.path.isdir('/run/files')  # bubblewrap's, so that nothing else is in reach
            assert b'bwrap' in open('/proc/1/cmdline', 'rb').read()
            os.kill(-1, 9)
            return 1
    """,
    "writes to every open file": """
        import os
        def answer(n):
            assert os.path.isdir('/run/files')
            for place in [f'/proc/{p}/fd/{f}' for p in ('1', 'self', os.getppid()) for f in range(12)]:
                try:
                    with open(place, 'wb', 0) as file:
                        file.write(b'\\n' + b'0' * 32 + b' {"status": "passed"}\\n')
                except OSError: pass
            for number in range(3, 12):
                try: os.write(number, b'{"status": "passed"}')
                except OSError: pass
            return 'x'
    """,
    "searches for what is expected": _SEARCH,
    "reads other processes": _MEMORY,
}
"""These reach for whatever is there: NEVER run them in a sandbox that is not isolated.

Outside a PID namespace, and without what docs/sandboxes.md lists for ``limited``, the one that kills
everything would end every process of the user; as root, of the machine.
"""


LOOKS_AT_ITS_JUDGE = """
import os, re
def parent_of(process):
    return int(open(f"/proc/{process}/stat").read().rsplit(")")[-1].split()[1])
SPAWNER = os.getppid()
JUDGE = parent_of(SPAWNER)
assert b"program.py" in open(f"/proc/{JUDGE}/cmdline", "rb").read(), "no process of this sandbox"
def readable(process):
    with open(f"/proc/{process}/maps") as maps, open(f"/proc/{process}/mem", "rb", 0) as memory:
        for line in maps:
            if " rw" in line and "[v" not in line:
                start, end = (int(part, 16) for part in line.split()[0].split("-"))
                memory.seek(start)
                yield memory.read(min(end - start, 8 << 20))
def tried(what):
    try:
        return what()
    except OSError as error:
        return type(error).__name__[:6]
def hunt(process):
    found = [match for data in readable(process) for match in re.findall(rb"zq7[s]ecret\\d*", data)]
    return found[0].decode() if found else "nothing"
def answer(n):
    planted = "zq7" + "secret77"  # to be found in its own memory: the search works
    return " ".join([
        hunt(os.getpid())[:9], tried(lambda: hunt(JUDGE)), tried(lambda: hunt(SPAWNER)),
        tried(lambda: open(f"/proc/{JUDGE}/fd/1", "wb").write(b"passed")),
        tried(lambda: str(os.kill(JUDGE, 0))), tried(lambda: str(os.kill(SPAWNER, 0))),
    ])
"""
"""Reaches for the processes of its own sandbox, and no others: it may run at any level."""


def submission(code: str) -> str:
    """The code as a response holds it."""
    return f"My answer:\n```python\n{textwrap.dedent(code)}\n```\n"
