"""A small ByteLevel BPE tokenizer and ChatML template for models made from scratch.

Any text can be encoded: every byte has a token. Digits are always tokens of their own. The merges
are learned from the built-in text below, so the same ids come out everywhere.
"""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["CHAT_TEMPLATE", "END_OF_TEXT", "END_OF_TURN", "VOCAB_SIZE", "write_tiny_tokenizer"]

VOCAB_SIZE = 512
END_OF_TEXT = "<|endoftext|>"
END_OF_TURN = "<|im_end|>"

_CONTROL = (END_OF_TEXT, "<|im_start|>", END_OF_TURN)
_MARKUP = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")

CHAT_TEMPLATE = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages and messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- 'You may call these tools:\\n<tools>' }}
    {%- for tool in tools %}
        {{- '\\n' }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '\\n</tools>\\nFor each call write\\n<tool_call>\\n{"name": <name>, ' }}
    {{- '"arguments": <object>}\\n</tool_call><|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'system' and loop.first and tools %}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
        {%- for call in message.tool_calls or [] %}
            {%- if message.content or not loop.first %}
                {{- '\\n' }}
            {%- endif %}
            {{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {%- if call.function.arguments is string %}
                {{- call.function.arguments }}
            {%- else %}
                {{- call.function.arguments | tojson }}
            {%- endif %}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

_ROLES = (
    """\
system
user
assistant
tool
Sort: 0
Reverse: 0
Question: 0
Answer: 0
"""
    * 8
)
"""Said so often that each word becomes one token."""

_TEXT = """\
Sort: 582013
Sort: 904417
Sort the digits of the number.
Reverse: abcde
Reverse: hello
Reverse the text.
Question: how many are left? Answer with a number.
The answer is 42. #### 42
You may call these tools:
For each call write
{"type": "function", "function": {"name": "add", "description": "Add two numbers.", "parameters": \
{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, \
"required": ["a", "b"]}}}
{"name": "search", "arguments": {"query": "the capital of France"}}
{"name": "calculate", "arguments": {"expression": "3 * (4 + 5)"}}
Error: unknown tool. The tool returned an error: bad arguments.
Think step by step, then give the final answer.
You are a helpful assistant. Use the tools when you need them.
Use the tool to look something up, then answer in one word.
Correct. Try again. Wrong. That is right. No. Yes.
There are three apples and five oranges in the basket. She gives two of them to her friend.
How much does he pay for each book? How many hours did they work in the week?
If each box has 12 pencils, then there are 12 * 4 = 48 pencils in all.
Find the first number that is greater than ten and less than one hundred.
The sum of the numbers is even. The product of the two numbers is odd.
A train leaves at noon and another one leaves an hour later.
What is the result of the calculation? Write only the result.
Read the text and say which of the answers is the best one.
It was not the end, but it could be the start of something new.
We have more time than money; they would rather have both.
"""


def write_tiny_tokenizer(directory: Path) -> dict[str, int]:
    """Write ``tokenizer.json``, its config and the chat template; return the ids of added tokens.

    The vocabulary has :data:`VOCAB_SIZE` ids. ``<|im_end|>`` ends a turn, ``<|endoftext|>`` pads.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: PLC0415

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(_MARKUP),
        special_tokens=list(_CONTROL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((_ROLES + _TEXT).splitlines(keepends=True), trainer)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in _MARKUP])
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    config = {
        "add_prefix_space": False,
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": END_OF_TURN,
        "model_max_length": 1_000_000,
        "pad_token": END_OF_TEXT,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": None,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return {text: int(tokenizer.token_to_id(text) or 0) for text in (*_CONTROL, *_MARKUP)}
