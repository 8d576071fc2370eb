"""``hyperrl gateway``: a model, served to a program that is started by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hyperrl.cli.options import require_training

if TYPE_CHECKING:
    from hyperrl.harness.gateway import GatewaySession

__all__ = ["gateway"]


def gateway(  # noqa: PLR0913, PLR0917  (one parameter an option)
    model: Annotated[Path, typer.Option(help="Model directory.")],
    out: Annotated[Path | None, typer.Option(help="Keep the trajectory in this folder.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of an answer.")] = 1024,
    temperature: Annotated[float, typer.Option(min=0, help="Of the policy; 0 is greedy.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of what is drawn.")] = 0,
) -> None:
    """Serve a model to a program that you start by hand, until Ctrl-C, and keep what it did.

    The program is pointed at the printed URL with the printed key, as if it were its model vendor:
    chat.completions, Responses or Anthropic Messages. Everything it asks becomes one trajectory.

    Example: hyperrl gateway --model runs/quickstart/model --out by-hand --port 8000
    """
    require_training()
    from hyperrl.harness.gateway import GatewaySettings
    from hyperrl.sampling import SamplingParams
    from hyperrl.wiring.hand_served import serve_model

    trajectory = serve_model(
        model,
        SamplingParams(max_tokens=max_tokens, temperature=temperature),
        settings=GatewaySettings(host=host, port=port),
        out=out,
        seed=seed,
        announce=_announce,
    )
    metrics = trajectory.metrics
    typer.echo(
        f"{len(trajectory.turns)} turns, {metrics['action_tokens']:.0f} tokens sampled,"
        f" {metrics['context_tokens']:.0f} read"
    )
    if out is not None and trajectory.turns:
        typer.echo(f"wrote the trajectory to {out}")


def _announce(session: GatewaySession) -> None:
    root = session.base_url.removesuffix("/v1")
    typer.echo("serving until Ctrl-C; point a program at it with")
    for vendor, url in (("OPENAI", session.base_url), ("ANTHROPIC", root)):
        typer.echo(f"export {vendor}_BASE_URL={url} {vendor}_API_KEY={session.api_key}")
