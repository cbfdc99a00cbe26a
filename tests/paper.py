"""The paper's Algorithm 1 and its test protocol, written from its text in plain loops.

Double precision, one number after the other, and nothing of tersense: whoever doubts the fast code
can read this beside the paper. The paper's layout and letters are kept: Θ is (n, m), one pattern a
column. What it leaves open is as in the authors' code: FC → ReLU → BN, and a border of one window,
mirrored without repeating the edge.
"""

import math
from dataclasses import dataclass

import numpy as np

EPSILON = 1e-5  # of batch normalization


@dataclass
class Layer:
    """A fully connected layer, ReLU unless it is the last, and batch normalization.

    `mean` and `variance` are the statistics that it uses when it is not trained.
    """

    weights: np.ndarray  # (outputs, inputs)
    bias: np.ndarray
    gain: np.ndarray
    shift: np.ndarray
    relu: bool
    mean: np.ndarray | None = None
    variance: np.ndarray | None = None

    def parameters(self):
        return [self.weights, self.bias, self.gain, self.shift]


def top_k_select(theta, k):
    """Line 2: 1 where an entry is among the k of largest magnitude of its column."""
    n, m = theta.shape
    mask = np.zeros((n, m))
    for j in range(m):
        left = list(range(n))
        for _ in range(k):
            best = left[0]
            for i in left:
                if abs(theta[i, j]) > abs(theta[best, j]):
                    best = i
            mask[best, j] = 1
            left.remove(best)
    return mask


def sparsify_and_binarize(theta, k):
    """Lines 1 to 6: Θ_sb and α."""
    n, m = theta.shape
    mask = top_k_select(theta, k)
    theta_sb, alpha = np.zeros((n, m)), np.zeros(m)
    for j in range(m):
        for i in range(n):
            theta_s = mask[i, j] * theta[i, j]
            if theta_s != 0:
                theta_sb[i, j] = 1 if theta_s > 0 else -1
            alpha[j] += abs(theta_s) / k
    return theta_sb, alpha


def measure(patch, theta_sb):
    """y = Φx of one vectorized patch, Φ = Θ_sbᵀ, by additions and subtractions."""
    n, m = theta_sb.shape
    y = np.zeros(m)
    for j in range(m):
        for i in range(n):
            if theta_sb[i, j] == 1:
                y[j] += patch[i]
            elif theta_sb[i, j] == -1:
                y[j] -= patch[i]
    return y


def fully_connect(values, layer):
    """One vector through the weights of a layer, and ReLU."""
    outputs, inputs = layer.weights.shape
    result = np.zeros(outputs)
    for o in range(outputs):
        result[o] = layer.bias[o]
        for i in range(inputs):
            result[o] += layer.weights[o, i] * values[i]
        if layer.relu and result[o] < 0:
            result[o] = 0
    return result


def train_step(patches, theta, layers, k, rate, memory, l2=0.0):
    """Take one step of Algorithm 1, in place.

    Args:
        patches: X, (N, n), mean subtracted and divided by the deviation.
        theta: Θ, (n, m).
        layers: The reconstruction module behind the scaling layer.
        k: Non-zeros of a column.
        rate: μ.
        memory: What Adam remembers; an empty dictionary to begin with.
        l2: λ of λ/2·‖W‖² on the weight matrices of the reconstruction.

    Returns:
        L, Θ_sb and α.
    """
    count, (n, m) = len(patches), theta.shape
    theta_sb, alpha = sparsify_and_binarize(theta, k)

    # Forward propagation, lines 7 to 9.
    y = np.array([measure(x, theta_sb) for x in patches])
    inputs = [np.array([[alpha[j] * y[p, j] for j in range(m)] for p in range(count)])]
    standardized, deviations, activations = [], [], []
    for layer in layers:
        active = np.array([fully_connect(values, layer) for values in inputs[-1]])
        standard, deviation = np.zeros(active.shape), np.zeros(active.shape[1])
        for o in range(active.shape[1]):
            mean = sum(active[p, o] for p in range(count)) / count
            variance = sum((active[p, o] - mean) ** 2 for p in range(count)) / count
            deviation[o] = math.sqrt(variance + EPSILON)
            for p in range(count):
                standard[p, o] = (active[p, o] - mean) / deviation[o]
        activations.append(active)
        standardized.append(standard)
        deviations.append(deviation)
        inputs.append(standard * layer.gain + layer.shift)
    estimate = inputs[-1]
    loss = 0.0
    for p in range(count):
        for i in range(n):
            loss += (patches[p, i] - estimate[p, i]) ** 2 / count
    for layer in layers:
        loss += l2 / 2 * sum(w**2 for w in layer.weights.flat)

    # Backward propagation, lines 10 to 12.
    gradient = np.array([[2 * (e - x) / count for e, x in zip(*pair, strict=True)]
                         for pair in zip(estimate, patches, strict=True)])  # fmt: skip
    of_layers = []
    for number in reversed(range(len(layers))):
        layer, standard = layers[number], standardized[number]
        outputs, entries = layer.weights.shape
        of_weights, of_bias = np.zeros((outputs, entries)), np.zeros(outputs)
        of_gain, of_shift = np.zeros(outputs), np.zeros(outputs)
        of_inputs = np.zeros((count, entries))
        for o in range(outputs):
            of_gain[o] = sum(gradient[p, o] * standard[p, o] for p in range(count))
            of_shift[o] = sum(gradient[p, o] for p in range(count))
            for p in range(count):
                # Through the statistics of the batch too.
                through = layer.gain[o] / deviations[number][o] * (
                    gradient[p, o] - of_shift[o] / count - standard[p, o] * of_gain[o] / count
                )  # fmt: skip
                if layer.relu and activations[number][p, o] <= 0:
                    through = 0.0
                of_bias[o] += through
                for i in range(entries):
                    of_weights[o, i] += through * inputs[number][p, i]
                    of_inputs[p, i] += through * layer.weights[o, i]
        of_weights += l2 * layer.weights
        of_layers.insert(0, [of_weights, of_bias, of_gain, of_shift])
        gradient = of_inputs
    of_theta_sb = np.zeros((n, m))
    for i in range(n):
        for j in range(m):
            for p in range(count):
                of_theta_sb[i, j] += gradient[p, j] * alpha[j] * patches[p, i]

    # Parameter update, lines 13 to 15: Θ by the gradient of Θ_sb.
    pairs = [(theta, of_theta_sb)]
    for layer, of_layer in zip(layers, of_layers, strict=True):
        pairs += list(zip(layer.parameters(), of_layer, strict=True))
    adam(pairs, rate, memory)
    return loss, theta_sb, alpha


def adam(pairs, rate, memory, beta_1=0.9, beta_2=0.999, epsilon=1e-8):
    """Kingma and Ba, Algorithm 1, on pairs of parameter and gradient."""
    memory["t"] = t = memory.get("t", 0) + 1
    for number, (parameter, gradient) in enumerate(pairs):
        first, second = memory.setdefault(
            number, (np.zeros(parameter.shape), np.zeros(parameter.shape))
        )
        for place in np.ndindex(parameter.shape):
            first[place] = beta_1 * first[place] + (1 - beta_1) * gradient[place]
            second[place] = beta_2 * second[place] + (1 - beta_2) * gradient[place] ** 2
            step = first[place] / (1 - beta_1**t)
            parameter[place] -= rate * step / (math.sqrt(second[place] / (1 - beta_2**t)) + epsilon)


def reconstruct(y, theta_sb, alpha, layers, mean, deviation):
    """Turn the measurements of raw pixels back into a patch, the network no longer trained."""
    n, m = theta_sb.shape
    # Φ((x − μ)/σ) = (Φx − μ·Φ1)/σ
    ones = measure(np.ones(n), theta_sb)
    values = np.array([alpha[j] * (y[j] - mean * ones[j]) / deviation for j in range(m)])
    for layer in layers:
        values = fully_connect(values, layer)
        for o in range(len(values)):
            standard = (values[o] - layer.mean[o]) / math.sqrt(layer.variance[o] + EPSILON)
            values[o] = layer.gain[o] * standard + layer.shift[o]
    return values * deviation + mean


def mirrored(place, side):
    """The pixel that stands at a place outside 0 … side − 1, the edge not repeated."""
    while not 0 <= place < side:
        place = -place if place < 0 else 2 * (side - 1) - place
    return place


def reconstruct_overlapping(image, window, stride, give_back):
    """The paper's test: overlapping patches, each on its own, averaged.

    Args:
        image: (H, W) uint8.
        window: Side of a patch, and width of the mirrored border.
        stride: Pixels between patches.
        give_back: Senses and reconstructs one vectorized patch.
    """
    height, width = image.shape
    total, times = np.zeros((height, width)), np.zeros((height, width))
    for top in range(-window, height + 1, stride):
        for left in range(-window, width + 1, stride):
            patch = np.zeros(window * window)
            for r in range(window):
                for c in range(window):
                    row, column = mirrored(top + r, height), mirrored(left + c, width)
                    patch[r * window + c] = image[row, column]
            estimate = None
            for r in range(window):
                for c in range(window):
                    if 0 <= top + r < height and 0 <= left + c < width:
                        estimate = give_back(patch) if estimate is None else estimate
                        total[top + r, left + c] += estimate[r * window + c]
                        times[top + r, left + c] += 1
    return total / times


def psnr(estimate, image):
    """PSNR in dB, peak 255."""
    errors = [(float(e) - float(x)) ** 2 for e, x in zip(estimate.flat, image.flat, strict=True)]
    return 10 * math.log10(255**2 / (sum(errors) / len(errors)))
