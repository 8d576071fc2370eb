"""An agent of somebody else's: an official client, pointed at the policy of its episode."""

from __future__ import annotations

import openai

from hyperrl.agents import EpisodeContext


async def run(ctx: EpisodeContext) -> None:
    """Ask twice, and hand in what was said last."""
    plain = openai.DefaultAsyncHttpxClient(verify=False)
    async with openai.AsyncOpenAI(base_url=ctx.base_url, api_key=ctx.api_key, http_client=plain) as client:
        messages: list[dict[str, str]] = [{"role": "user", "content": "sort: 3 1 2"}]
        text = ""
        for _ in range(2):
            stream = await client.chat.completions.create(model="x", messages=messages, stream=True)  # type: ignore[arg-type]
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "again"}]
    await ctx.step(text)


async def run_with_a_child(ctx: EpisodeContext) -> None:
    """Hand in what a sub-agent said, which asks beside the task."""
    plain = openai.DefaultAsyncHttpxClient(verify=False)
    async with openai.AsyncOpenAI(base_url=ctx.base_url, api_key=ctx.api_key, http_client=plain) as client:
        text = ""
        for headers in ({}, {"x-openai-subagent": "collab_spawn"}):
            answer = await client.chat.completions.create(
                model="x", messages=[{"role": "user", "content": f"sort: {headers}"}], extra_headers=headers
            )
            text = answer.choices[0].message.content or ""
    await ctx.step(text)
