"""k-means and softmax regression on handwritten digits, in plain NumPy code, run with NumPy and with blockarray.

The two algorithms are ordinary functions of the array module `xp`; nothing in them knows about blockarray.  The script
runs them with both modules, compares the answers and the times, and leaves two files in demo_output/: centres.png, the
cluster centres as images, and plan.html, a picture of the kernels that a step of k-means became.

    python examples/digits.py [--copies 18] [--out demo_output]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import blockarray as ba

DIGITS, CLUSTERS = 10, 20
STEPS = {"k-means": 10, "softmax regression": 50}

Program = Callable[[int], Any]  # from a number of steps to a tuple of arrays


# ---- The program, in NumPy's words ----------------------------------------------------------------------------------


def nearest(xp: Any, images: Any, centres: Any) -> Any:
    """Index of the closest centre to each image.  The (images, centres, pixels) differences are written out."""
    differences = images[:, None, :] - centres[None, :, :]
    return xp.argmin(xp.sum(differences * differences, axis=2), axis=1)


def nearest_by_hand(xp: Any, images: Any, centres: Any) -> Any:
    """The same by expanding the square, which a NumPy programmer does lest the differences fill the memory."""
    return xp.argmin(xp.sum(centres * centres, axis=1) - 2 * (images @ centres.T), axis=1)


def kmeans(xp: Any, images: Any, centres: Any, steps: int, nearest: Callable[..., Any] = nearest) -> tuple[Any, Any]:
    """Lloyd's algorithm: the centres after `steps` steps and each image's cluster."""
    for _ in range(steps):
        labels = nearest(xp, images, centres)
        member = (labels[:, None] == xp.arange(len(centres))).astype(images.dtype)
        sizes = xp.sum(member, axis=0)
        centres = (member.T @ images) / xp.maximum(sizes, 1)[:, None]
    return centres, nearest(xp, images, centres)


def probabilities(xp: Any, images: Any, weights: Any, bias: Any) -> Any:
    scores = images @ weights + bias
    e = xp.exp(scores - xp.max(scores, axis=1, keepdims=True))
    return e / xp.sum(e, axis=1, keepdims=True)


def fit(xp: Any, images: Any, digits: Any, steps: int, rate: float = 0.5, decay: float = 1e-4) -> tuple[Any, Any]:
    """Softmax regression by gradient descent: weights and bias."""
    truth = (digits[:, None] == xp.arange(DIGITS)).astype(images.dtype)
    weights = xp.zeros((images.shape[1], DIGITS), dtype=images.dtype)
    bias = xp.zeros(DIGITS, dtype=images.dtype)
    for _ in range(steps):
        error = (probabilities(xp, images, weights, bias) - truth) / len(images)
        weights = weights - rate * (images.T @ error + decay * weights)
        bias = bias - rate * xp.sum(error, axis=0)
    return weights, bias


# ---- Running it twice -----------------------------------------------------------------------------------------------


def load(copies: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """scikit-learn's digits as (training images, digits, held-out images, digits), images as rows in [0, 1].

    The training images are few, so they are taken `copies` times, each time with other noise.
    """
    images, digits = load_digits(return_X_y=True)
    parts = train_test_split(images / 16.0, digits, test_size=0.25, random_state=0, stratify=digits)
    train, test, train_digits, test_digits = map(np.asarray, parts)
    many = np.tile(train, (copies, 1))
    many += np.random.default_rng(0).normal(0, 0.1, many.shape)
    return many.astype(np.float32), np.tile(train_digits, copies), test.astype(np.float32), test_digits


def timed(program: Program, steps: int) -> tuple[float, list[np.ndarray]]:
    start = time.perf_counter()
    result = [np.asarray(array) for array in program(steps)]  # blockarray computes here, when the host asks
    return time.perf_counter() - start, result


def compare(name: str, with_numpy: Program, with_blockarray: Program) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Print how the two do, and return their results."""
    steps = STEPS[name]
    plan = ba.explain(*with_blockarray(1))
    with ba.profile() as profile:
        first, _ = timed(with_blockarray, steps)
    rounds = [(timed(with_numpy, steps), timed(with_blockarray, steps)) for _ in range(3)]
    (numpy_times, ours_times) = ([seconds for seconds, _ in side] for side in zip(*rounds, strict=True))
    theirs, ours = min(numpy_times), min(ours_times)
    print(
        f"{name}, {steps} steps\n"
        f"  NumPy       {theirs * 1e3:6.0f} ms\n"
        f"  blockarray  {ours * 1e3:6.0f} ms: {theirs / ours:.1f} times as fast\n"
        f"              {first * 1e3:6.0f} ms the first time, {profile.compiles} kernels compiled\n"
        f"  the program with one step records {plan.operations} operations, which become {len(plan.kernels)} kernels\n"
    )
    (_, expected), (_, got) = rounds[0]
    return expected, got


def accuracies(
    images: np.ndarray, digits: np.ndarray, train_digits: np.ndarray, answers: dict[str, Any]
) -> list[float]:
    """What fraction of these images k-means and the classifier get right.  A cluster stands for its commonest digit."""
    centres, labels = answers["k-means"]
    names = np.array([np.bincount(train_digits[labels == c], minlength=DIGITS).argmax() for c in range(CLUSTERS)])
    by_cluster = names[nearest(np, images, centres)]
    by_score = probabilities(np, images, *answers["softmax regression"]).argmax(axis=1)
    return [float((by_cluster == digits).mean()), float((by_score == digits).mean())]


def save_centres(centres: np.ndarray, path: Path) -> None:
    figure, axes = plt.subplots(2, CLUSTERS // 2, figsize=(CLUSTERS / 2, 2.2))
    for axis, centre in zip(axes.flat, centres, strict=True):
        axis.imshow(centre.reshape(8, 8), cmap="gray_r")
        axis.set_axis_off()
    figure.savefig(path, dpi=100, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--copies", type=int, default=18, help="noisy copies of the training images (default: 18)")
    parser.add_argument("--out", type=Path, default=Path("demo_output"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    images, digits, held_out, held_out_digits = load(args.copies)
    start = images[np.random.default_rng(1).choice(len(images), CLUSTERS, replace=False)]
    print(
        f"scikit-learn's digits, 1,797 images of 8x8 pixels: {len(held_out)} are held out, the others are taken\n"
        f"{args.copies} times with noise added, which makes {len(images):,} to learn from.\n"
    )

    def programs(xp: Any) -> dict[str, Program]:
        x, y, c = xp.asarray(images), xp.asarray(digits), xp.asarray(start)
        return {
            "k-means": lambda steps: kmeans(xp, x, c, steps),
            "softmax regression": lambda steps: fit(xp, x, y, steps),
        }

    with_numpy, with_blockarray = programs(np), programs(ba)
    rewritten = partial(kmeans, np, images, start, nearest=nearest_by_hand)
    by_hand = min(timed(rewritten, STEPS["k-means"])[0] for _ in range(3))
    compared = {name: compare(name, with_numpy[name], with_blockarray[name]) for name in with_numpy}
    expected, got = ({name: pair[side] for name, pair in compared.items()} for side in (0, 1))
    print(f"k-means in NumPy with the distances rewritten by hand as a matrix product: {by_hand * 1e3:.0f} ms\n")

    (centres, labels), (weights, bias) = expected["k-means"], expected["softmax regression"]
    (our_centres, our_labels), (our_weights, our_bias) = got["k-means"], got["softmax regression"]
    same = int((labels == our_labels).sum())
    differences = {
        "centres": np.abs(centres - our_centres).max(),
        "weights": np.abs(weights - our_weights).max(),
        "bias": np.abs(bias - our_bias).max(),
    }
    print(f"answers: {same:,} of {len(labels):,} cluster labels are equal; largest differences: ", end="")
    print(", ".join(f"{name} {difference:.1e}" for name, difference in differences.items()))
    for module, answers in (("NumPy", expected), ("blockarray", got)):
        clusters, classifier = accuracies(held_out, held_out_digits, digits, answers)
        print(f"held-out accuracy with {module + ':':12} k-means {clusters:.1%}, softmax regression {classifier:.1%}")

    save_centres(our_centres, args.out / "centres.png")
    ba.explain(nearest(ba, ba.asarray(images), ba.asarray(start))).html(args.out / "plan.html")
    print(f"\nwrote {args.out / 'centres.png'} and {args.out / 'plan.html'}")
    # Sums are added in another order, so that an image halfway between two centres may change sides.
    if same < 0.999 * len(labels) or max(differences.values()) > 1e-2:
        sys.exit("The answers differ by more than rounding explains.")


if __name__ == "__main__":
    main()
