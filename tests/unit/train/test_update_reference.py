"""One update against its formulas written plainly: one forward pass for each episode, nothing shared."""

from __future__ import annotations

import pytest
import torch
from one_update import ADDITIONS, LOSSES, Update, make_config, models, prepare
from training_cases import random_groups

from hyperrl.train.advantages import compute_group_advantages

IN_THE_LOSS = [name for name in ADDITIONS if name != "kl in the reward"]
LOW, HIGH = 0.3, 1.5  # make_config: 1 - clip_low and 1 + clip_high


def read(model, episode):
    """Logprobs and entropies of an episode's actions, with gradient; it is a chain of turns."""
    ids, mask = [], []
    for one in episode.turns:
        ids += [*one.context_ids.tolist(), *one.action_ids.tolist()]
        mask += [0] * len(one.context_ids) + [1] * len(one.action_ids)
    logits = model(torch.tensor([ids])).logits[0, :-1]
    every = torch.log_softmax(logits, -1)
    chosen = torch.tensor(mask[1:], dtype=torch.bool)
    entropy = -(every.exp() * every).sum(-1)
    return every[torch.arange(len(ids) - 1), torch.tensor(ids[1:])][chosen], entropy[chosen]


def policy_loss(name, logprobs, old, advantage, config):
    ratio = (logprobs - old).exp()
    if name == "policy_gradient":
        return -advantage * logprobs
    if name == "cispo":
        return -ratio.detach().clamp(LOW, HIGH) * advantage * logprobs
    if name == "gspo":  # the mean log ratio has the gradient of each token's own over its length
        ratio = (logprobs - logprobs.detach() + (logprobs - old).detach().mean()).exp()
    loss = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(LOW, HIGH))
    if name == "clipped" and config.dual_clip and advantage < 0:
        loss = loss.clamp(max=-advantage * config.dual_clip)
    return loss


def correction(config, logprobs, behavior):
    ratio = (logprobs.detach() - behavior).exp()
    parts = config.correction
    if parts.mode == "off":
        return torch.ones_like(ratio)
    if parts.level == "sequence":
        ratio = ratio.prod().expand_as(ratio)
    if parts.mode == "truncate":
        return ratio.clamp(max=parts.cap)
    return torch.where((ratio >= parts.floor) & (ratio <= parts.cap), ratio, 0)


def episode_loss(config, episode, advantage):
    """The sum of the token losses of an episode, divided by nothing."""
    model, reference = models()
    logprobs, entropy = read(model, episode)
    with torch.no_grad():
        ref, _ = read(reference, episode)
    behavior = torch.full_like(logprobs, -1.0)
    old = behavior if config.old_logprobs == "behavior" else logprobs.detach()
    losses = correction(config, logprobs, behavior) * policy_loss(
        config.loss, logprobs, old, advantage, config
    )
    if config.kl.place == "loss":  # both estimators of the additions have the gradient of k2
        losses = losses + config.kl.coef * 0.5 * (logprobs - ref).square()
    return (losses - config.entropy_coef * entropy).sum()


@pytest.mark.parametrize("addition", IN_THE_LOSS)
@pytest.mark.parametrize("loss", LOSSES)
def test_an_update_is_its_formulas(loss, addition, record_property):
    groups = random_groups(11, groups=2, size=3)
    config = make_config(loss, "seq_mean_token_sum", addition, microbatch_tokens=20)
    found = Update(prepare(groups, config), config)
    model, _ = models()
    count = sum(len(group) for group in groups)
    for group in groups:
        advantages = compute_group_advantages([episode.reward for episode in group]).tolist()
        for episode, advantage in zip(group, advantages, strict=True):
            (episode_loss(config, episode, advantage) / count).backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    scale = max(float(value.abs().max()) for value in expected.values())
    assert scale > 1e-2
    apart = max(float((found.gradient[name] - value).abs().max()) for name, value in expected.items()) / scale
    limit = 2e-6  # eager attention takes its softmax in float32 even for float64 weights
    assert apart <= limit
    record_property("compared", (f"update, {loss}", f"one pass for each episode, {addition}", apart, limit))
