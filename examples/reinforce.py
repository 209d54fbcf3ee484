"""REINFORCE (Williams 1992) balances a pole on a cart: how many of 200 steps, at the end."""

import numpy as np

import miniml as ml
from miniml import nn, ops, optim

EPISODES, LIMIT = 16, 200


class Carts:
    """Many carts at once (Barto, Sutton, Anderson 1983): position, speed, angle, turning speed."""

    def __init__(self, rng, count):
        self.state = rng.uniform(-0.05, 0.05, (count, 4))
        self.up = np.ones(count, bool)

    def step(self, right):
        """Push each cart right or left for 0.02 s; those that fell stay fallen."""
        _, v, angle, turn = self.state.T
        force = np.where(right, 10.0, -10.0)
        sin, cos = np.sin(angle), np.cos(angle)
        push = (force + 0.05 * turn**2 * sin) / 1.1
        bend = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        speed = push - 0.05 * bend * cos / 1.1
        self.state = self.state + 0.02 * np.stack([v, speed, turn, bend], 1)
        self.up &= (np.abs(self.state[:, 0]) < 2.4) & (np.abs(self.state[:, 2]) < 0.21)


def play(policy, rng):
    """States, actions and which of them counted: (LIMIT, EPISODES, ...)."""
    carts, states, actions, counted = Carts(rng, EPISODES), [], [], []
    for _ in range(LIMIT):
        states.append(carts.state.astype(np.float32))
        counted.append(carts.up.copy())
        scores = policy(states[-1]).asnumpy()
        right = rng.uniform(size=EPISODES) < 1 / (1 + np.exp(scores[:, 0] - scores[:, 1]))
        actions.append(right.astype(np.int64))
        carts.step(right)
    return np.array(states), np.array(actions), np.array(counted)


def main(picture=None, rounds=60):
    ml.manual_seed(0)
    net, rng = nn.Sequential(nn.Dense(4, 32), nn.Tanh(), nn.Dense(32, 2)), np.random.default_rng(0)

    def loss(scores, taken):
        """-log of the probability of each action, times how much better it did than the mean."""
        actions, advantage = taken
        return ops.mean(ops.cross_entropy(scores, actions, reduction="none") * advantage)

    step = ml.train_step(
        net, loss, optim.Adam(net.trainable_params(), lr=optim.cosine(0.02, rounds))
    )
    policy, lengths = ml.jit(net), []
    for _ in range(rounds):
        states, actions, counted = play(policy, rng)
        lengths.append(counted.sum(0).mean())
        togo = np.zeros(counted.shape)
        for t in reversed(range(LIMIT)):  # what is still to come, fading
            togo[t] = counted[t] * (1 + (0.98 * togo[t + 1] if t + 1 < LIMIT else 0))
        advantage = (togo - togo[counted].mean()) / (togo[counted].std() + 1e-6) * counted
        rows = states.reshape(-1, 4), actions.reshape(-1), advantage.reshape(-1).astype(np.float32)
        step(rows[0], (rows[1], rows[2]))
    if picture:
        draw(lengths, picture)
    return float(np.mean(lengths[-5:]))


def draw(lengths, picture):
    from matplotlib.figure import Figure

    axes = Figure(figsize=(4.8, 3.2), layout="constrained").subplots()
    axes.plot(lengths)
    axes.set(xlabel="round of 16 episodes", ylabel="steps until the pole fell", ylim=(0, 205))
    axes.figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    print(f"the pole stands for {main('reinforce.png'):.0f} of 200 steps")
