"""Makes the golden values that tests/cpu_kernels compares every CPU kernel with.

    python make_golden.py          # needs torch, numpy, safetensors; writes one .safetensors file an op beside itself

A file holds cases. Case `NAME` has tensors `NAME/in0`, `NAME/in1`, ... (float32, labels int32, the iteration uint64) and
`NAME/out0`, ... (float64), in the operand order of `vdnn_graph::Op`; the metadata entry `NAME` is the op as JSON.
Inputs are rounded to float32 first and everything is computed in float64 from them, so that the same values check the
f32 and the f64 kernels. Seeded: running it again gives the same values (the order of the header may differ).
Continuous integration reads the files and never runs this.
"""

import json
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent
RANDOM = np.random.default_rng(2016)


def draw(*shape, ties=False):
    """Random numbers that float32 holds exactly; with `ties`, few distinct ones."""
    values = RANDOM.integers(-3, 4, shape) if ties else RANDOM.standard_normal(shape).astype(np.float32)
    return torch.tensor(values.astype(np.float64))


def single(value):
    """A scalar operand as float32 holds it."""
    return torch.tensor([float(np.float32(value))], dtype=torch.float64)


def counter(value):
    return torch.tensor([value], dtype=torch.int64)


class File:
    """The cases of one file."""

    def __init__(self):
        self.tensors, self.metadata = {}, {"torch": torch.__version__}

    def case(self, name, op, inputs, outputs):
        assert name not in self.metadata, name
        self.metadata[name] = json.dumps(op)
        for index, tensor in enumerate(inputs):
            array = tensor.detach().numpy()
            if array.dtype == np.float64:
                array = array.astype(np.float32)
            elif tensor.shape == (1,) and name_is_counter(op, index, len(inputs)):
                array = array.astype(np.uint64)
            else:
                array = array.astype(np.int32)
            self.tensors[f"{name}/in{index}"] = np.ascontiguousarray(array)
        for index, tensor in enumerate(outputs):
            self.tensors[f"{name}/out{index}"] = np.ascontiguousarray(tensor.detach().numpy().astype(np.float64))

    def save(self, name):
        save_file(self.tensors, HERE / f"{name}.safetensors", self.metadata)


def name_is_counter(op, index, count):
    kind = op if isinstance(op, str) else next(iter(op))
    return kind in ("sgd", "adam", "dropout", "dropout_grad") and index == count - 1


def graded(f, *inputs):
    """The output, a random upstream gradient, and the gradients of the inputs."""
    inputs = [tensor.clone().requires_grad_() for tensor in inputs]
    y = f(*inputs)
    dy = draw(*y.shape)
    return y, dy, torch.autograd.grad(y, inputs, dy)


def conv2d():
    file = File()
    # name, N, C, H, W, K, kh, kw, stride, padding, dilation, groups, bias
    cases = [
        ("plain", 2, 3, 6, 5, 4, 3, 3, (1, 1), (1, 1), (1, 1), 1, True),
        ("no_bias", 2, 3, 6, 5, 4, 3, 3, (1, 1), (0, 0), (1, 1), 1, False),
        ("b01_stride_of_kernel", 1, 3, 16, 16, 2, 4, 4, (4, 4), (0, 0), (1, 1), 1, True),
        ("b01_stem", 1, 3, 15, 13, 4, 7, 7, (2, 2), (3, 3), (1, 1), 1, False),
        ("b02_tail_no_window_reaches", 2, 2, 8, 9, 3, 3, 3, (2, 3), (0, 1), (1, 1), 1, True),
        ("b03_stride_2", 2, 3, 9, 8, 4, 3, 2, (2, 1), (1, 0), (1, 1), 1, True),
        ("b03_dilation_2", 2, 3, 9, 8, 4, 3, 2, (1, 1), (2, 1), (2, 1), 1, True),
        ("b03_all_different", 2, 4, 11, 9, 6, 3, 2, (3, 2), (2, 1), (2, 3), 2, True),
        ("pointwise", 3, 5, 4, 3, 6, 1, 1, (1, 1), (0, 0), (1, 1), 1, True),
        ("pointwise_stride", 2, 5, 5, 4, 3, 1, 1, (2, 2), (0, 0), (1, 1), 1, False),
        ("groups", 2, 6, 5, 6, 4, 3, 3, (1, 1), (1, 1), (1, 1), 2, True),
        ("depthwise", 2, 4, 5, 6, 4, 3, 3, (1, 2), (1, 1), (1, 1), 4, True),
        ("depthwise_multiplier", 2, 3, 5, 6, 6, 3, 1, (1, 1), (1, 0), (1, 1), 3, False),
        ("one_pixel", 4, 3, 1, 1, 5, 3, 3, (1, 1), (1, 1), (1, 1), 1, True),
        ("small_map", 5, 6, 2, 2, 7, 3, 3, (1, 1), (1, 1), (1, 1), 1, True),
        ("whole_image", 3, 4, 5, 4, 6, 5, 4, (1, 1), (0, 0), (1, 1), 1, True),
        ("wide_padding", 1, 2, 4, 3, 3, 3, 3, (1, 1), (4, 3), (1, 1), 1, True),
        ("odd_map", 3, 4, 7, 9, 5, 3, 3, (1, 1), (1, 1), (1, 1), 1, True),
        ("no_padding_3x3", 2, 4, 7, 6, 5, 3, 3, (1, 1), (0, 0), (1, 1), 1, False),
        ("padding_2_3x3", 2, 3, 4, 5, 4, 3, 3, (1, 1), (2, 2), (1, 1), 1, True),
    ]
    for name, n, c, h, w, k, kh, kw, stride, padding, dilation, groups, bias in cases:
        x, weight = draw(n, c, h, w), draw(k, c // groups, kh, kw)
        b = [draw(k)] if bias else []
        y, dy, grads = graded(lambda x, w, *b: F.conv2d(x, w, *b, stride, padding, dilation, groups) if b
                              else F.conv2d(x, w, None, stride, padding, dilation, groups), x, weight, *b)
        conv = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        file.case(name, {"conv2d": conv}, [x, weight, *b], [y])
        file.case(f"{name}.dx", {"conv2d_data_grad": {"conv": conv, "input": [h, w]}}, [dy, weight], [grads[0]])
        file.case(f"{name}.dw", {"conv2d_weight_grad": {"conv": conv, "kernel": [kh, kw]}}, [x, dy], [grads[1]])
        if bias:
            file.case(f"{name}.db", "bias_grad", [dy], [grads[2]])
    # The stated values of case B02: one dimension, upstream gradient all ones.
    conv = {"stride": (2, 2), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    x = torch.arange(1, 7, dtype=torch.float64).reshape(1, 1, 1, 6)
    w = torch.tensor([1.0, 2, 3], dtype=torch.float64).reshape(1, 1, 1, 3)
    ones = torch.ones(1, 1, 1, 2, dtype=torch.float64)
    stated = lambda *values: torch.tensor(values, dtype=torch.float64).reshape(1, 1, 1, -1)
    file.case("b02_stated", {"conv2d": conv}, [x, w], [stated(14, 26)])
    file.case("b02_stated.dx", {"conv2d_data_grad": {"conv": conv, "input": [1, 6]}}, [ones, w],
              [stated(1, 2, 4, 2, 3, 0)])
    file.case("b02_stated.dw", {"conv2d_weight_grad": {"conv": conv, "kernel": [1, 3]}}, [x, ones], [stated(4, 6, 8)])
    file.save("conv2d")


def batch_norm():
    file = File()
    stated = torch.tensor([1.0, 2, 3, 4], dtype=torch.float64).reshape(4, 1, 1, 1)
    cases = [("plain", draw(3, 4, 5, 2), 1e-5, 0.1), ("large_mean", draw(4, 3, 3, 3) + 1000, 1e-3, 0.25),
             ("b11_biased_output_unbiased_running", stated, 1e-5, 0.1), ("single_pixels", draw(6, 3, 1, 1), 1e-5, 0.1)]
    for name, x, eps, momentum in cases:
        x = x.float().double()
        c = x.shape[1]
        mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
        gamma, beta = (torch.ones(1).double(), torch.zeros(1).double()) if c == 1 else (draw(c), draw(c))
        running = [torch.zeros(c).double(), torch.ones(c).double()]
        old = [tensor.clone() for tensor in running]
        y, dy, grads = graded(lambda x, g, b: F.batch_norm(x, *running, g, b, True, momentum, eps), x, gamma, beta)
        op = {"eps": eps}
        file.case(f"{name}.stats", "batch_norm_stats", [x], [mean, var])
        # From here on statistics are operands, and so rounded to float32.
        mean32, var32 = mean.float().double(), var.float().double()
        shaped = lambda tensor: tensor.reshape(1, -1, 1, 1)
        hat = (x - shaped(mean32)) / (shaped(var32) + eps).sqrt()
        file.case(name, {"batch_norm": op}, [x, mean32, var32, gamma, beta], [hat * shaped(gamma) + shaped(beta)])
        count = x.numel() // c
        update = {"momentum": momentum, "count": count}
        new = [(1 - momentum) * old[0] + momentum * mean32, (1 - momentum) * old[1] + momentum * var32 * count / (count - 1)]
        for ours, theirs in zip(new, running):
            assert torch.allclose(ours, theirs, rtol=1e-6), (name, ours, theirs)
        file.case(f"{name}.update", {"batch_norm_update": update}, [mean32, var32, *old], new)
        if name != "large_mean":
            file.case(f"{name}.grad", {"batch_norm_grad": op}, [x, dy, mean, var, gamma], grads)
    # Case B16: an empty batch moves nothing.
    running = [draw(3), draw(3)]
    zero = torch.zeros(3, dtype=torch.float64)
    file.case("b16_empty.update", {"batch_norm_update": {"momentum": 0.1, "count": 0}}, [zero, zero, *running], running)
    file.save("batch_norm")


def batch_norm_relu():
    """Both in one op. X around kinks of ReLU would tell nothing: what is too near 0 is moved away."""
    file = File()
    for name, shape, eps in [("plain", (3, 4, 5, 2), 1e-5), ("single_pixels", (6, 3, 1, 1), 1e-3)]:
        c = shape[1]
        x, gamma, beta = draw(*shape).float().double(), draw(c), draw(c)
        mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
        before = F.batch_norm(x, None, None, gamma, beta, True, 0.1, eps)
        assert before.abs().min() > 1e-4, (name, before.abs().min())
        op = {"eps": eps}
        y, dy, grads = graded(lambda x, g, b: F.relu(F.batch_norm(x, None, None, g, b, True, 0.1, eps)), x, gamma, beta)
        # As operands the statistics are rounded to float32.
        mean32, var32 = mean.float().double().reshape(1, -1, 1, 1), var.float().double().reshape(1, -1, 1, 1)
        hat = (x - mean32) / (var32 + eps).sqrt()
        stated = F.relu(hat * gamma.reshape(1, -1, 1, 1) + beta.reshape(1, -1, 1, 1))
        assert torch.allclose(stated, y, atol=1e-5), name
        file.case(name, {"batch_norm_relu": op}, [x, mean, var, gamma, beta], [stated])
        file.case(f"{name}.grad", {"batch_norm_relu_grad": op}, [x, dy, mean, var, gamma, beta], grads)
    file.save("batch_norm_relu")


def half():
    """PyTorch's own bf16 on a CPU; every number is one of bf16, or of float32 where a vector is kept in that."""
    file = File()
    bf16 = lambda tensor: tensor.to(torch.bfloat16)
    plain = lambda tensor: tensor.detach().double()

    def case(name, op, inputs, outputs):
        file.case(name, op, [plain(tensor) for tensor in inputs], [plain(tensor) for tensor in outputs])

    for name, (x, w), stride, padding in [("conv3x3", (draw(2, 8, 7, 6), draw(12, 8, 3, 3)), 1, 1),
                                          ("conv1x1", (draw(2, 16, 5, 5), draw(8, 16, 1, 1)), 2, 0)]:
        x, w = bf16(x).requires_grad_(), bf16(w * 0.2).requires_grad_()
        conv = {"stride": [stride] * 2, "padding": [padding] * 2, "dilation": [1, 1], "groups": 1}
        y = F.conv2d(x, w, None, stride, padding)
        dy = bf16(draw(*y.shape))
        dx, dw = torch.autograd.grad(y, (x, w), dy)
        case(name, {"conv2d": conv}, [x, w], [y])
        case(f"{name}.dx", {"conv2d_data_grad": {"conv": conv, "input": list(x.shape[2:])}}, [dy, w], [dx])
        case(f"{name}.dw", {"conv2d_weight_grad": {"conv": conv, "kernel": list(w.shape[2:])}}, [x, dy], [dw])
    x, w = bf16(draw(6, 20)).requires_grad_(), bf16(draw(9, 20) * 0.2).requires_grad_()
    y = F.linear(x, w)
    dy = bf16(draw(*y.shape))
    dx, dw = torch.autograd.grad(y, (x, w), dy)
    case("linear", "linear", [x, w], [y])
    case("linear.dx", "linear_data_grad", [dy, w], [dx])
    case("linear.dw", "linear_weight_grad", [x, dy], [dw])
    # Statistics, gamma and beta are float32 beside a bf16 X, as under autocast.
    x = bf16(draw(4, 6, 5, 3)).requires_grad_()
    gamma, beta = draw(6).float().requires_grad_(), draw(6).float().requires_grad_()
    y = F.batch_norm(x, None, None, gamma, beta, True, 0.1, 1e-5)
    dy = bf16(draw(*y.shape))
    dx, dgamma, dbeta = torch.autograd.grad(y, (x, gamma, beta), dy)
    mean, var = x.double().mean((0, 2, 3)).float(), x.double().var((0, 2, 3), unbiased=False).float()
    case("batch_norm.stats", "batch_norm_stats", [x], [mean, var])
    case("batch_norm", {"batch_norm": {"eps": 1e-5}}, [x, mean, var, gamma, beta], [y])
    case("batch_norm.grad", {"batch_norm_grad": {"eps": 1e-5}}, [x, dy, mean, var, gamma], [dx, dgamma, dbeta])
    file.save("half")


def window(kernel, stride, padding, dilation=(1, 1), ceil=False):
    return {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation, "ceil_mode": ceil}


def max_pool2d():
    file = File()
    cases = [
        ("plain", draw(2, 3, 6, 4), window((2, 2), (2, 2), (0, 0))),
        ("b09_overlap", draw(2, 2, 9, 8), window((3, 3), (2, 2), (1, 1))),
        ("b09_overlap_every_pixel", draw(2, 2, 5, 6), window((3, 3), (1, 1), (1, 1))),
        ("b09_all_negative", -1 - draw(1, 2, 5, 5).abs(), window((3, 3), (2, 2), (1, 1))),
        ("ties", draw(2, 3, 7, 7, ties=True), window((3, 2), (1, 2), (1, 1))),
        ("dilation", draw(1, 2, 9, 8), window((3, 2), (2, 1), (1, 1), (2, 3))),
        ("b06_ceil", draw(1, 2, 5, 5), window((2, 2), (2, 2), (1, 1), ceil=True)),
        ("b06_ceil_uneven", draw(1, 1, 6, 7), window((1, 1), (2, 2), (0, 0), ceil=True)),
        ("b06_ceil_stride_over", draw(2, 1, 8, 10), window((3, 3), (4, 4), (0, 0), ceil=True)),
    ]
    for name, x, w in cases:
        x = x.float().double()
        y, dy, (dx,) = graded(lambda x: F.max_pool2d(x, w["kernel"], w["stride"], w["padding"], w["dilation"],
                                                      w["ceil_mode"]), x)
        file.case(name, {"max_pool2d": {"window": w}}, [x], [y])
        file.case(f"{name}.grad", {"max_pool2d_grad": {"window": w}}, [x, y, dy], [dx])
    file.save("max_pool2d")


def avg_pool2d():
    file = File()
    windows = {
        "plain": ((6, 4), window((2, 2), (2, 2), (0, 0))),
        "overlap": ((7, 8), window((3, 2), (2, 1), (1, 1))),
        "ceil": ((7, 6), window((3, 3), (2, 2), (1, 1), ceil=True)),
        "ceil_hangs_over": ((6, 7), window((3, 2), (2, 3), (1, 0), ceil=True)),
    }
    for name, ((h, w), win) in windows.items():
        for count in (True, False):
            x = draw(2, 3, h, w)
            y, dy, (dx,) = graded(lambda x: F.avg_pool2d(x, win["kernel"], win["stride"], win["padding"],
                                                          win["ceil_mode"], count), x)
            op = {"window": win, "count_include_pad": count}
            case = f"{name}.{'padded' if count else 'inside'}"
            file.case(case, {"avg_pool2d": op}, [x], [y])
            file.case(f"{case}.grad", {"avg_pool2d_grad": {"pool": op, "input": [h, w]}}, [dy], [dx])
    for name, size, output in [("global", (5, 4), (1, 1)), ("uneven", (7, 5), (3, 2)), ("larger", (2, 3), (5, 7)),
                               ("same", (3, 4), (3, 4))]:
        x = draw(2, 3, *size)
        y, dy, (dx,) = graded(lambda x: F.adaptive_avg_pool2d(x, output), x)
        file.case(f"adaptive_{name}", {"adaptive_avg_pool2d": {"output": output}}, [x], [y])
        file.case(f"adaptive_{name}.grad", {"adaptive_avg_pool2d_grad": {"input": size}}, [dy], [dx])
    file.save("avg_pool2d")


def local_response_norm():
    file = File()
    for name, size, alpha, beta, k in [("alexnet", 5, 1e-4, 0.75, 2.0), ("strong", 3, 0.9, 0.75, 1.0),
                                        ("even", 4, 0.5, 0.5, 1.5), ("one", 1, 0.7, 1.0, 1.0), ("wider", 9, 0.6, 0.75, 1.0)]:
        op = {"size": size, "alpha": alpha, "beta": beta, "k": k}
        x = draw(2, 6, 3, 4)
        y, dy, (dx,) = graded(lambda x: F.local_response_norm(x, size, alpha, beta, k), x)
        file.case(name, {"local_response_norm": op}, [x], [y])
        file.case(f"{name}.grad", {"local_response_norm_grad": op}, [x, dy], [dx])
    file.save("local_response_norm")


def linear():
    file = File()
    for name, n, features, out, bias in [("plain", 3, 7, 5, True), ("no_bias", 4, 6, 3, False), ("one", 1, 8, 1, True),
                                         ("wide", 5, 20, 150, True)]:
        b = [draw(out)] if bias else []
        x, w = draw(n, features), draw(out, features)
        y, dy, grads = graded(F.linear, x, w, *b)
        file.case(name, "linear", [x, w, *b], [y])
        file.case(f"{name}.dx", "linear_data_grad", [dy, w], [grads[0]])
        file.case(f"{name}.dw", "linear_weight_grad", [x, dy], [grads[1]])
        if bias:
            file.case(f"{name}.db", "bias_grad", [dy], [grads[2]])
    file.save("linear")


def elementwise():
    file = File()
    x = draw(3, 4, 3, 2)
    y, dy, (dx,) = graded(torch.relu, x)
    file.case("relu", "relu", [x], [y])
    file.case("relu.grad", "relu_grad", [y, dy], [dx])
    ties = draw(3, 10, ties=True)
    y, dy, (dx,) = graded(torch.relu, ties)
    file.case("relu_zero", "relu", [ties], [y])
    file.case("relu_zero.grad", "relu_grad", [y, dy], [dx])
    a, b, c = draw(2, 3, 2, 2), draw(2, 1, 2, 2), draw(2, 4, 2, 2)
    other = draw(3, 4, 3, 2)
    file.case("add", "add", [x, other], [x + other])
    whole = torch.cat([a, b, c], 1)
    file.case("concat", {"concat": {}}, [a, b, c], [whole])
    file.case("split", {"split": {"sections": [3, 1, 4]}}, [whole], [a, b, c])
    file.case("flatten", "flatten", [x], [x.flatten(1)])
    file.case("unflatten", {"unflatten": {"sample": [4, 3, 2]}}, [x.flatten(1)], [x])
    file.save("elementwise")


def philox(counter, key):
    """Philox4x32-10, written from the paper's description."""
    for _ in range(10):
        p0, p1 = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(p1 >> 32) ^ counter[1] ^ key[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ counter[3] ^ key[1], p0 & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


def dropout():
    file = File()
    for name, p, seed, stream, iteration in [("half", 0.5, 7, 3, 0), ("b29_iteration", 0.3, (5 << 32) + 9, 1, (2 << 32) + 6),
                                             ("none", 0.0, 1, 1, 1)]:
        x = draw(3, 2, 3, 3)
        words = []
        for block in range(-(-x.numel() // 4)):
            words += philox([block, 0, iteration & 0xFFFFFFFF, iteration >> 32],
                            [(seed & 0xFFFFFFFF) ^ stream, seed >> 32])
        keep = torch.tensor([word >= int(p * 2**32) for word in words[: x.numel()]]).reshape(x.shape)
        y = torch.where(keep, x / (1 - p), torch.zeros(1).double())
        op = {"p": p, "seed": seed, "stream": stream}
        file.case(name, {"dropout": op}, [x, counter(iteration)], [y])
        file.case(f"{name}.grad", {"dropout_grad": op}, [x, counter(iteration)], [y])
    file.save("dropout")


def loss():
    file = File()
    for name, n, classes, smoothing, ignore, scale in [("plain", 5, 4, 0.0, -100, 1), ("smoothing", 6, 5, 0.1, -100, 1),
                                                       ("ignored", 6, 3, 0.0, 2, 1), ("both", 7, 4, 0.3, 1, 1),
                                                       ("large_logits", 4, 3, 0.0, -100, 500)]:
        x = (draw(n, classes) * scale).float().double().requires_grad_()
        labels = torch.tensor(np.arange(n) * 2 % classes)
        y = F.cross_entropy(x, labels, label_smoothing=smoothing, ignore_index=ignore)
        (dx,) = torch.autograd.grad(y, [x])
        op = {"label_smoothing": smoothing, "ignore_index": ignore}
        file.case(name, {"softmax_cross_entropy": op}, [x, labels], [y.reshape(1)])
        file.case(f"{name}.grad", {"softmax_cross_entropy_grad": op}, [x, labels], [dx])
        correct = (x.argmax(1) == labels).sum().double().reshape(1)
        file.case(f"{name}.accuracy", "accuracy", [x, labels], [correct])
    ties = torch.tensor([[1.0, 1, 0], [0, 2, 2], [3, 3, 3]], dtype=torch.float64)
    labels = torch.tensor([0, 2, 0])
    file.case("ties.accuracy", "accuracy", [ties, labels], [torch.tensor([2.0], dtype=torch.float64)])
    file.save("softmax_cross_entropy")


def optimizers():
    """Each step from the float32-rounded state that the step before left, so that every step is a case by itself."""
    file = File()
    lr = single(0.1)
    sgd = [("plain", {}), ("b21_decay", {"weight_decay": 0.1}), ("momentum", {"momentum": 0.9}),
           ("b21_decay_momentum", {"momentum": 0.9, "weight_decay": 0.1}),
           ("b21_dampening", {"momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1}),
           ("nesterov", {"momentum": 0.8, "nesterov": True, "weight_decay": 0.01})]
    for name, options in sgd:
        op = {"momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False, **options}
        w, state = draw(4, 5), {}
        for step in range(3):
            g = draw(4, 5)
            p = torch.nn.Parameter(w.clone())
            optimizer = torch.optim.SGD([p], lr=lr.item(), **options)
            if state:
                optimizer.state[p] = {key: value.clone() for key, value in state.items()}
            old = [state.get("momentum_buffer", torch.zeros_like(w))] if op["momentum"] else []
            p.grad = g.clone()
            optimizer.step()
            new = [optimizer.state[p]["momentum_buffer"]] if op["momentum"] else []
            file.case(f"sgd.{name}.{step}", {"sgd": op}, [w, g, *old, lr, counter(step)], [p, *new])
            w = p.detach().float().double()
            state = {"momentum_buffer": new[0].float().double()} if new else {}
    adam = [("plain", False, {}), ("decay", False, {"weight_decay": 0.1}), ("decoupled", True, {"weight_decay": 0.1}),
            ("betas", False, {"betas": (0.5, 0.75), "eps": 1e-3})]
    for name, decoupled, options in adam:
        beta1, beta2 = options.get("betas", (0.9, 0.999))
        op = {"beta1": beta1, "beta2": beta2, "eps": options.get("eps", 1e-8),
              "weight_decay": options.get("weight_decay", 0.0), "decoupled": decoupled}
        w, m, v = draw(4, 5), torch.zeros(4, 5).double(), torch.zeros(4, 5).double()
        for step in range(3):
            g = draw(4, 5)
            p = torch.nn.Parameter(w.clone())
            optimizer = (torch.optim.AdamW if decoupled else torch.optim.Adam)([p], lr=lr.item(), **{"weight_decay": 0.0, **options})
            optimizer.state[p] = {"step": torch.tensor(float(step)), "exp_avg": m.clone(), "exp_avg_sq": v.clone()}
            p.grad = g.clone()
            optimizer.step()
            state = optimizer.state[p]
            file.case(f"adam.{name}.{step}", {"adam": op}, [w, g, m, v, lr, counter(step)],
                      [p, state["exp_avg"], state["exp_avg_sq"]])
            w, m, v = (tensor.detach().float().double() for tensor in (p, state["exp_avg"], state["exp_avg_sq"]))
    file.save("optimizers")


def loss_scale():
    """What `torch.amp.GradScaler` makes of scripted steps: before each the gradient; after it scale, good steps, w. No random numbers."""
    tensors, metadata = {}, {"torch": torch.__version__}
    script = "fffoffffffofofffffffooooooffffffffffffff"  # finite, overflow
    optimizers = {
        "sgd": lambda p: torch.optim.SGD([p], lr=0.1, momentum=0.9, dampening=0.5, weight_decay=0.1),
        "adam": lambda p: torch.optim.Adam([p], lr=0.1),
    }
    for name, initial, interval, steps, odd in [("sgd.interval3", 65536.0, 3, script, "inf"), ("sgd.first_skipped", 1024.0, 2, "ooo" + script, "nan"),
                                                ("adam.first_skipped", 65536.0, 5, "oooo" + script, "-inf")]:
        p = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
        optimizer = optimizers[name.split(".")[0]](p)
        scaler = torch.amp.GradScaler("cpu", init_scale=initial, growth_interval=interval)
        scaler.scale(torch.zeros(1))
        rows = []
        for at, step in enumerate(steps):
            g = torch.tensor([1.0, 0.25, -0.5]) * (1 + at % 3)
            p.grad = g * scaler.get_scale()
            if step == "o":
                p.grad[at % 3] = float(odd)
            rows.append([*p.grad.tolist()])
            scaler.step(optimizer)
            scaler.update()
            rows[-1] += [scaler.get_scale(), scaler.state_dict()["_growth_tracker"], *p.detach().tolist()]
        tensors[name] = np.array(rows, np.float64)
        metadata[name] = json.dumps({"initial": initial, "interval": interval})
    usual = torch.amp.GradScaler("cpu")
    metadata["usual"] = json.dumps({"initial": usual.get_scale(), "growth": usual.get_growth_factor(), "backoff": usual.get_backoff_factor(),
                                    "interval": usual.get_growth_interval()})
    save_file(tensors, HERE / "loss_scale.safetensors", metadata)


def normalise():
    """Images of bytes, normalised in float32 and in float64. Their numbers do not come from `RANDOM`."""
    tensors, metadata = {}, {"torch": torch.__version__}
    random = np.random.default_rng(27)
    every = np.arange(256, dtype=np.uint8).reshape(1, 1, 16, 16)
    cases = [("grey", every, [0.286041], [0.353024]), ("plain", every, [0.0], [1.0]),
             ("colour", random.integers(0, 256, (2, 3, 16, 17), dtype=np.uint8), [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
             ("four", random.integers(0, 256, (3, 4, 5, 3), dtype=np.uint8), [0.1, 0.9, -0.5, 0.0], [0.01, 3.0, -0.5, 100.0])]
    for name, image, mean, std in cases:
        x, vector = torch.from_numpy(image), lambda of, dtype: torch.tensor(of, dtype=torch.float32).to(dtype)[None, :, None, None]
        tensors[f"{name}/in"] = image
        for dtype, suffix in [(torch.float32, "f32"), (torch.float64, "f64")]:
            y = (x.to(dtype) / 255 - vector(mean, dtype)) / vector(std, dtype)
            tensors[f"{name}/{suffix}"] = np.ascontiguousarray(y.numpy())
        metadata[name] = json.dumps({"mean": mean, "std": std})
    save_file(tensors, HERE / "normalise.safetensors", metadata)


if __name__ == "__main__":
    for make in (conv2d, batch_norm, max_pool2d, avg_pool2d, local_response_norm, linear, elementwise, dropout, loss, optimizers,
                 batch_norm_relu, half, loss_scale, normalise):
        make()
