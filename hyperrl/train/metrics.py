"""The one table of metrics: what a number is called, its unit, its meaning, how parts are combined.

Names that verl has keep verl's spelling (``actor/...``, ``critic/...``, ``timing_s/...``), so that
its dashboards fit. A number whose name is not here cannot be logged. ``docs/metrics.md`` is this
table as a page; a test compares them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hyperrl.errors import ConfigError, nearest

__all__ = ["METRICS", "Metric", "Reduction", "find_metric", "metrics_page", "reduce_metrics", "summarise"]

Reduction = Literal["mean", "sum", "max", "min", "last"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table.

    Attributes:
        name: how it is logged; ``<...>`` stands for any one word, such as a failure kind.
        unit: what it counts or measures; ``1`` for a pure number.
        reduction: how the values of several updates become one.
        meaning: what it is, with its formula.
    """

    name: str
    unit: str
    reduction: Reduction
    meaning: str


def _spread(name: str, unit: str, meaning: str) -> tuple[Metric, ...]:
    return (
        Metric(f"{name}/mean", unit, "mean", f"Mean of {meaning}."),
        Metric(f"{name}/max", unit, "max", f"Largest {meaning}."),
        Metric(f"{name}/min", unit, "min", f"Smallest {meaning}."),
    )


_TABLE: tuple[Metric, ...] = (
    Metric("training/global_step", "iterations", "last", "Iteration that was finished, from 1."),
    Metric("training/epoch", "epochs", "last", "Epoch of the task set that the batch began in, from 0."),
    Metric("policy/version", "version", "last", "Version that is served after the iteration."),
    Metric("training/optimizer_steps", "steps", "last", "Updates applied since the run began."),
    Metric(
        "training/rollout_probs_diff_max",
        "probability",
        "max",
        "Largest difference of a sampled token's probability between sampler and learner.",
    ),
    Metric("training/rollout_probs_diff_mean", "probability", "mean", "Mean of that difference."),
    Metric("training/rollout_probs_diff_std", "probability", "mean", "Its standard deviation (ddof 1)."),
    Metric(
        "consistency/logprob_diff_max",
        "nats",
        "max",
        "Largest difference of a sampled token's logprob between sampler and learner, one version.",
    ),
    Metric("consistency/logprob_diff_mean", "nats", "mean", "Mean of that difference."),
    Metric("consistency/over_limit", "tokens", "sum", "Tokens whose difference is above the limit."),
    Metric("consistency/tokens", "tokens", "sum", "Tokens that were compared."),
    Metric(
        "actor/loss", "1", "mean", "What is minimised: policy loss + kl.coef * KL - entropy_coef * entropy."
    ),
    Metric(
        "actor/pg_loss",
        "1",
        "mean",
        "Policy loss: sum of weight * correction * token loss (algorithm.loss).",
    ),
    Metric(
        "actor/pg_clipfrac", "fraction", "mean", "Share of loss tokens whose loss the clip range changed."
    ),
    Metric(
        "actor/pg_clipfrac_lower", "fraction", "mean", "Share of loss tokens whose loss `dual_clip` changed."
    ),
    Metric("actor/kl_loss", "nats", "mean", "Weighted sum of the KL estimates to the reference."),
    Metric("actor/reward_kl_penalty", "nats", "mean", "Mean KL estimate that is taken off token rewards."),
    Metric("actor/entropy_loss", "nats", "mean", "Weighted sum of token entropies, during the update."),
    Metric(
        "actor/ppo_kl",
        "nats",
        "mean",
        "k1 estimate of KL(old || current), mean of old - current logprobs, over tokens with advantage.",
    ),
    Metric(
        "actor/ppo_kl_k3",
        "nats",
        "mean",
        "k3 estimate of the same, mean of exp(d) - d - 1 with d = current - old.",
    ),
    Metric(
        "actor/entropy",
        "nats",
        "mean",
        "Mean entropy of the policy at the loss tokens, before the update, at the sampling temperature.",
    ),
    Metric("actor/grad_norm", "1", "mean", "Norm of the gradient before clipping."),
    Metric("actor/lr", "1", "last", "Learning rate of the last update."),
    Metric("actor/updates_applied", "updates", "sum", "Updates that changed the weights."),
    Metric(
        "actor/updates_skipped",
        "updates",
        "sum",
        "Updates left out because loss or gradient were not finite.",
    ),
    Metric(
        "actor/updates_without_signal",
        "updates",
        "sum",
        "Updates left out because every advantage was exactly 0.",
    ),
    Metric("rollout_corr/kl", "nats", "mean", "Mean of sampler minus learner logprobs, one version."),
    Metric("rollout_corr/k3_kl", "nats", "mean", "Mean of exp(d) - d - 1, d = learner - sampler logprobs."),
    Metric("rollout_corr/training_ppl", "1", "mean", "Mean perplexity of a sequence under the learner."),
    Metric("rollout_corr/rollout_ppl", "1", "mean", "Mean perplexity of a sequence under the sampler."),
    Metric("rollout_corr/log_ppl_diff", "nats", "mean", "Mean difference of the two log perplexities."),
    Metric("rollout_corr/chi2_token", "1", "mean", "Mean of exp(2 d) over tokens, minus 1."),
    Metric("rollout_corr/chi2_seq", "1", "mean", "Mean of exp(2 sum d) over sequences, minus 1."),
    Metric("rollout_corr/rollout_is_mean", "1", "mean", "Mean correction weight."),
    Metric("rollout_corr/rollout_is_max", "1", "max", "Largest importance ratio before its bounds."),
    Metric("rollout_corr/rollout_is_min", "1", "min", "Smallest importance ratio before its bounds."),
    Metric(
        "rollout_corr/rollout_is_eff_sample_size",
        "fraction",
        "mean",
        "(sum w)^2 / sum w^2 / N of the correction weights.",
    ),
    Metric("rollout_corr/rollout_is_oob_ratio", "fraction", "mean", "Share of tokens outside the bounds."),
    Metric(
        "training/rollout_actor_probs_pearson_corr",
        "1",
        "mean",
        "Correlation of the sampler's and the learner's probabilities of the sampled tokens.",
    ),
    Metric(
        "critic/vf_loss", "1", "mean", "Value loss: mean over tokens of max((V-R)^2, (V_clipped-R)^2) / 2."
    ),
    Metric("critic/vf_clipfrac", "fraction", "mean", "Share of tokens whose value loss clipping changed."),
    Metric(
        "critic/vf_explained_var",
        "1",
        "mean",
        "1 - var(R - V) / (var(R) + 1e-5), with the values before the update.",
    ),
    Metric("critic/grad_norm", "1", "mean", "Norm of the critic's gradient before clipping."),
    Metric("critic/lr", "1", "last", "Learning rate of the critic's last update."),
    Metric("critic/updates_applied", "updates", "sum", "Updates that changed the critic's weights."),
    Metric("critic/updates_skipped", "updates", "sum", "Updates of the critic that were not finite."),
    *_spread("critic/values", "reward", "value of a loss token, by the critic before the update"),
    Metric("critic/vpred_mean", "reward", "mean", "Mean value of a loss token, during the update."),
    *_spread("critic/returns", "reward", "return of a loss token, the critic's target"),
    *_spread("critic/score", "reward", "episode reward, over the episodes that are learned from"),
    *_spread("critic/rewards", "reward", "the same, `algorithm.overlong` taken off"),
    *_spread("critic/advantages", "1", "advantage of a loss token"),
    Metric("groups/played", "groups", "sum", "Groups that were played, dynamic sampling's further ones too."),
    Metric("groups/kept", "groups", "sum", "Groups that are learned from."),
    Metric(
        "groups/dropped",
        "groups",
        "sum",
        "Groups with fewer than `algorithm.smallest_group` usable episodes.",
    ),
    Metric(
        "groups/without_signal",
        "groups",
        "sum",
        "Groups that dynamic sampling left out because their rewards are equal.",
    ),
    Metric(
        "groups/zero_std_fraction",
        "fraction",
        "mean",
        "Share of the kept groups whose rewards are all equal (no signal).",
    ),
    Metric("episodes/used", "episodes", "sum", "Episodes that are learned from."),
    Metric("episodes/without_tokens", "episodes", "sum", "Of these, episodes without a single loss token."),
    Metric(
        "episodes/excluded/<kind>",
        "episodes",
        "sum",
        "Episodes left out: by failure kind, `unscored`, or `small_group` (its group was dropped).",
    ),
    Metric(
        "episodes/causes/<cause>",
        "episodes",
        "sum",
        "All episodes by why they came out as they did: `right` (reward at least `evaluation.success`),"
        " `wrong`, `unparsed`, `tool_failure`, `timeout`, `judge_failure`, `unscored`, `failed`, `excluded`.",
    ),
    Metric("episodes/truncated_fraction", "fraction", "mean", "Share of the episodes that we cut."),
    Metric("episodes/failed", "episodes", "sum", "Episodes that ended in a failure."),
    *_spread("episodes/turns", "turns", "number of turns of an episode"),
    *_spread("response_length", "tokens", "number of sampled tokens of an episode"),
    Metric(
        "response_length/clip_ratio",
        "fraction",
        "mean",
        "Share of the episodes with an action that ran into its token limit.",
    ),
    *_spread("prompt_length", "tokens", "number of tokens of an episode's first prompt"),
    Metric(
        "rollout/new_root_rate",
        "fraction",
        "mean",
        "Share of the turns that rewrote history: roots after a seat's first.",
    ),
    Metric(
        "rollout/delivered_fraction",
        "fraction",
        "mean",
        "Share of the sampled tokens that learning may use; the rest is side requests and lost answers.",
    ),
    Metric("rollout/tool_calls/<status>", "calls", "sum", "Tool calls by status (`ok`, `timeout`, ...)."),
    Metric("timing_s/gen", "s", "sum", "Playing the episodes."),
    Metric("timing_s/adv", "s", "sum", "Advantages, masks and padding."),
    Metric("timing_s/old_log_prob", "s", "sum", "Scoring by the policy before the update, gate included."),
    Metric("timing_s/ref", "s", "sum", "Scoring by the reference."),
    Metric("timing_s/values", "s", "sum", "The critic's values."),
    Metric("timing_s/update_actor", "s", "sum", "The policy's updates."),
    Metric("timing_s/update_critic", "s", "sum", "The critic's updates."),
    Metric("timing_s/update_weights", "s", "sum", "Publication."),
    Metric("timing_s/store", "s", "sum", "Writing trajectories."),
    Metric("timing_s/testing", "s", "last", "One held-out evaluation, sampled and greedy."),
    Metric("timing_s/step", "s", "sum", "The whole iteration."),
    Metric("perf/total_num_tokens", "tokens", "sum", "Tokens of the episodes, read and sampled, each once."),
    Metric("perf/throughput", "tokens/s", "mean", "Tokens of the batch by the seconds of the iteration."),
    Metric("perf/time_per_step", "s", "sum", "The whole iteration, as `timing_s/step`."),
    Metric(
        "perf/update_tokens",
        "tokens",
        "sum",
        "Tokens that the policy's forward and backward passes have read, padding left out.",
    ),
    Metric("perf/padding_fraction", "fraction", "mean", "Share of padding in what these passes computed."),
    Metric("perf/update_throughput", "tokens/s", "mean", "`perf/update_tokens` / `timing_s/update_actor`."),
    Metric(
        "perf/tflops/actor",
        "TFLOP/s",
        "mean",
        "Model FLOPs of the policy's forward and backward passes (`train/flops.py`) by"
        " `timing_s/update_actor`; not for mixtures of experts.",
    ),
    Metric("perf/mfu/actor", "fraction", "mean", "The same by the device's 16-bit peak, where it is known."),
    Metric("perf/max_memory_allocated_gb", "GiB", "max", "Most memory of tensors so far, on an accelerator."),
    Metric(
        "perf/cpu_memory_used_gb", "GiB", "max", "Most resident memory of the process so far, on the CPU."
    ),
    Metric(
        "validation/sampled_success",
        "fraction",
        "last",
        "Held-out success, sampled: avg@K, K = `evaluation.samples`.",
    ),
    Metric(
        "validation/sampled_success_low", "fraction", "last", "Lower end of its 95 % interval, over tasks."
    ),
    Metric("validation/sampled_success_high", "fraction", "last", "Upper end of its 95 % interval."),
    Metric("validation/sampled_reward_mean", "reward", "last", "Held-out mean reward, sampled."),
    Metric("validation/greedy_success", "fraction", "last", "Held-out success, greedy."),
    Metric("validation/greedy_reward_mean", "reward", "last", "Held-out mean reward, greedy."),
    Metric("validation/tasks", "tasks", "last", "Held-out tasks with a scored sample."),
    Metric("validation/episodes", "episodes", "last", "Sampled held-out episodes: tasks times samples."),
    Metric("validation/pass_at/<k>", "fraction", "last", "Held-out pass@k, as for `eval/pass_at/<k>`."),
    Metric("validation/pass_at_low/<k>", "fraction", "last", "Lower end of its 95 % interval, over tasks."),
    Metric("validation/pass_at_high/<k>", "fraction", "last", "Upper end of its 95 % interval."),
    Metric("validation/tool_calls/<status>", "calls", "last", "Tool calls of sampled held-out episodes."),
    Metric("validation/unscored", "episodes", "last", "Episodes of both that have no reward."),
    Metric("eval/success", "fraction", "last", "avg@K: mean over tasks of the share that succeeds."),
    Metric("eval/success_low", "fraction", "last", "Lower end of its 95 % interval, clustered by task."),
    Metric("eval/success_high", "fraction", "last", "Upper end of its 95 % interval."),
    Metric("eval/pass_at/<k>", "fraction", "last", "pass@k: mean over tasks of 1 - C(n - c, k) / C(n, k)."),
    Metric("eval/pass_at_low/<k>", "fraction", "last", "Lower end of its 95 % interval, over tasks."),
    Metric("eval/pass_at_high/<k>", "fraction", "last", "Upper end of its 95 % interval."),
    Metric("eval/reward", "reward", "last", "Mean over tasks of the mean reward of their samples."),
    Metric("eval/reward_low", "reward", "last", "Lower end of its 95 % interval, clustered by task."),
    Metric("eval/reward_high", "reward", "last", "Upper end of its 95 % interval."),
    Metric("eval/tasks", "tasks", "last", "Tasks with a scored sample."),
    Metric("eval/episodes", "episodes", "last", "Episodes that were played."),
    Metric("eval/unscored", "episodes", "last", "Of these, episodes without a reward; in no mean."),
    Metric("eval/unscored/<kind>", "episodes", "last", "Episodes without a reward, by cause."),
    Metric("eval/causes/<cause>", "episodes", "last", "Episodes by why they came out so: right, wrong, ..."),
    Metric("eval/truncated/<reason>", "episodes", "last", "Episodes that were cut, by reason."),
    Metric("eval/clipped", "episodes", "last", "Episodes with an action that ran into its token limit."),
    Metric("eval/turns", "turns", "last", "Mean number of turns of an episode."),
    Metric("eval/prompt_tokens", "tokens", "last", "Tokens read; of an endpoint, as it reports them."),
    Metric("eval/completion_tokens", "tokens", "last", "Tokens sampled; of an endpoint, as it reports them."),
    Metric("eval/tool_calls/<status>", "calls", "last", "Tool calls by status."),
    Metric("validation/causes/<cause>", "episodes", "last", "Sampled held-out episodes by the same causes."),
    Metric("sft/loss", "nats", "last", "Mean cross entropy of the action tokens of the step."),
    Metric("sft/grad_norm", "1", "last", "Norm of the gradient before clipping."),
    Metric("sft/lr", "1", "last", "Learning rate of the step."),
    Metric("sft/tokens", "tokens", "sum", "Action tokens of the step."),
    Metric("sft/epoch", "epochs", "last", "Pass over the conversations that the step belongs to, from 0."),
    Metric("sft/skipped", "steps", "sum", "Steps left out because loss or gradient were not finite."),
    Metric("sft/validation_loss", "nats", "last", "Mean cross entropy of the held-out action tokens."),
)

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _TABLE}
"""Every metric by its name."""

_FAMILIES = {name[: name.index("<")]: metric for name, metric in METRICS.items() if "<" in name}


def find_metric(name: str) -> Metric:
    """Return the row of a metric.

    Raises:
        ConfigError: the table has no such metric.
    """
    if metric := METRICS.get(name):
        return metric
    prefix, slash, word = name.rpartition("/")
    if word and (metric := _FAMILIES.get(prefix + slash)):
        return metric
    raise ConfigError(
        f"unknown metric {name!r}.{nearest(name, METRICS)} Every metric has a row in hyperrl/train/metrics.py"
    )


def reduce_metrics(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Combine the metrics of several updates, each as its row says."""
    values: dict[str, list[float]] = {}
    for part in parts:
        for name, value in part.items():
            values.setdefault(name, []).append(value)
    return {name: _reduce(found, find_metric(name).reduction) for name, found in values.items()}


def _reduce(values: Sequence[float], reduction: Reduction) -> float:
    if reduction == "mean":
        return math.fsum(values) / len(values) if all(map(math.isfinite, values)) else math.nan
    if reduction == "sum":
        return math.fsum(values)
    if reduction == "last":
        return values[-1]
    return max(values) if reduction == "max" else min(values)


def summarise(name: str, values: Sequence[float]) -> dict[str, float]:
    """Return ``name/mean``, ``name/max`` and ``name/min`` of values; nothing for no values."""
    if not len(values):
        return {}
    return {
        f"{name}/mean": math.fsum(values) / len(values),
        f"{name}/max": float(max(values)),
        f"{name}/min": float(min(values)),
    }


def metrics_page() -> str:
    """Return the table as the Markdown page ``docs/metrics.md``."""
    rows = [f"| `{m.name}` | {m.unit} | {m.reduction} | {_escape(m.meaning)} |" for m in METRICS.values()]
    head = [
        "# Metrics",
        "",
        "One line of `metrics.jsonl` is one iteration or one evaluation (`validation/...`). Names that verl",
        "has keep verl's spelling (`actor/...`, `critic/...`, `timing_s/...`), so that its dashboards fit;",
        "`actor` is the learner and `critic` holds statistics of rewards. `<...>` stands for any one word.",
        "*Over updates* says how the values of an iteration's updates become one. A number that is not",
        "finite is written as `null`. `sft/...` are the numbers of a step of `hyperrl sft`, which stand in",
        "the new model's `sft-metrics.jsonl`; `eval/...` are those of `hyperrl eval --json` and its",
        "`summary.json`. This page is made by `python -m hyperrl.train.metrics > docs/metrics.md`.",
        "",
        "| metric | unit | over updates | meaning |",
        "|---|---|---|---|",
    ]
    return "\n".join([*head, *rows]) + "\n"


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(metrics_page(), end="")
