"""An environment of one's own: the policy finds a number by halving.

Run this file to see an episode.
"""

import gymnasium

from hyperrl.envs import ProceduralTaskset, TextEnv, reward


class GuessNumber(TextEnv):
    """Seven guesses, each answered with "higher" or "lower"."""

    system_prompt = "Find my number. Answer with a number and nothing else."

    def tasks(self):
        held_out = self.splits.index(self.split)  # odd numbers are for training, even ones are held out

        def draw(rng):
            return {"secret": 1 + 2 * int(rng.integers(50)) + held_out}

        return ProceduralTaskset(draw, count=1000, seed=held_out)

    def start(self):
        return "I am thinking of a number from 1 to 100."

    def reply(self, task, answer, turn):
        guess = answer.strip()
        if guess == str(task["secret"]) or turn == 6:
            return None  # the episode ends and the rewards run
        if not guess.isdecimal() or len(guess) > 3:
            return "That is not a number from 1 to 100."
        return "higher" if int(guess) < task["secret"] else "lower"

    @reward
    def found(self, task, answer):
        return answer.strip() == str(task["secret"])

    def gold(self, task):
        return str(task["secret"])


gymnasium.register("GuessNumber-v0", entry_point=GuessNumber)

if __name__ == "__main__":
    env = gymnasium.make("GuessNumber-v0", render_mode="ansi")
    observation, info = env.reset(seed=0)
    low, high, terminated = 1, 100, False
    while not terminated:
        guess = (low + high) // 2
        observation, score, terminated, truncated, info = env.step(str(guess))
        low, high = (guess + 1, high) if observation == "higher" else (low, guess - 1)
    print(env.render())
    print("score", score, info)
