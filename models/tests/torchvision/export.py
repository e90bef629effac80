"""Writes names and shapes of torchvision's parameters and buffers, one a line, as the tests expect them.

Usage: python export.py FOLDER   (needs torchvision; the counter num_batches_tracked is left out)
"""

import pathlib
import sys

import torchvision

NETWORKS = ["alexnet", "vgg16", "vgg11_bn", "vgg19_bn", "resnet18", "resnet50", "resnet152", "googlenet", "densenet121"]


def build(name):
    options = {"aux_logits": False, "init_weights": False} if name == "googlenet" else {}
    return getattr(torchvision.models, name)(weights=None, **options)


def main():
    folder = pathlib.Path(sys.argv[1])
    for name in NETWORKS:
        state = build(name).state_dict()
        lines = [
            f"{key} {'x'.join(map(str, value.shape))}\n"
            for key, value in state.items()
            if not key.endswith("num_batches_tracked")
        ]
        (folder / f"{name}.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
