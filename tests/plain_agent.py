"""An agent program as a stranger could have written it: the standard library only, chat.completions and MCP.

python plain_agent.py [--loop] [--crash] [--silent] [--detach]   (the prompt on the standard input)
"""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

SHELL = {
    "type": "function",
    "function": {
        "name": "sh",
        "description": "Run a command.",
        "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]},
    },
}


def post(url, body):
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "authorization": f"Bearer {os.environ['AGENT_KEY']}",
    }
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.loads(response.read() or b"null")


def ask_tools(method, **params):
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return post(os.environ["AGENT_TOOLS"], message)["result"]


def offered():
    if not os.environ.get("AGENT_TOOLS"):
        return [SHELL]
    listed = ask_tools("tools/list")["tools"]
    keys = ("name", "description")
    return [SHELL] + [
        {"type": "function", "function": {**{key: t[key] for key in keys}, "parameters": t["inputSchema"]}}
        for t in listed
    ]


def use_tool(call):
    name = call["function"]["name"]
    try:
        arguments = json.loads(call["function"]["arguments"])
    except ValueError as error:
        return f"no JSON: {error}"
    if name == "sh":
        shell = ["/bin/sh", "-c", arguments["cmd"]]
        return subprocess.run(shell, capture_output=True, text=True, check=False).stdout
    result = ask_tools("tools/call", name=name, arguments=arguments)
    return "\n".join(part["text"] for part in result["content"])


def main(flags):
    messages = [{"role": "user", "content": sys.stdin.read()}]
    tools = offered()
    while True:
        try:
            body = {"model": os.environ["AGENT_MODEL"], "messages": messages, "tools": tools}
            said = post(os.environ["AGENT_URL"] + "/chat/completions", body)["choices"][0]["message"]
        except urllib.error.HTTPError as error:
            if "--loop" in flags:
                time.sleep(0.05)
                continue
            sys.exit(f"the model failed: {error.code} {error.read().decode()}")
        messages.append(said)
        if not said.get("tool_calls"):
            break
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": use_tool(call)}
            for call in said["tool_calls"]
        ]
    if "--detach" in flags:
        subprocess.Popen(["sleep", "300"], start_new_session=True)
    if "--crash" in flags:
        sys.exit("it broke at the end")
    if "--silent" not in flags:
        print(said["content"])


if __name__ == "__main__":
    main(sys.argv[1:])
