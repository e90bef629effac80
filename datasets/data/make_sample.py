#!/usr/bin/env python3
"""Cut the shipped sample out of the full Fashion-MNIST.

Usage: make_sample.py FOLDER [OUT]

FOLDER holds the four IDX .gz files of the full data set (the Debian package
`dataset-fashion-mnist` leaves them in usr/share/datasets/fashion-mnist).
OUT is where the sample goes, by default the folder of this script.

The rule: in file order, the first 1,000 images of each class of the train part
and the first 200 of each class of the test part, kept in file order.
Standard library only.
"""

import gzip
import hashlib
import math
import pathlib
import struct
import sys

FULL = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
PER_CLASS = {"train": 1000, "t10k": 200}
N_CLASSES = 10


def read(folder, name):
    """Decoded bytes of one file of the full set; stops when they are not the published ones."""
    content = gzip.decompress((folder / f"{name}.gz").read_bytes())
    found = hashlib.sha256(content).hexdigest()
    if found != FULL[name]:
        sys.exit(f"{name}: expected sha256 {FULL[name]}, found {found}")
    return content


def write(out, name, content):
    """One deterministic .gz file: no name and no time in its header."""
    packed = gzip.compress(content, compresslevel=9, mtime=0)
    (out / f"{name}.gz").write_bytes(packed)
    print(f"{hashlib.sha256(content).hexdigest()}  {name}  {len(content)} bytes, {len(packed)} packed")


def statistics(pixels):
    """Mean and population deviation of bytes read as 0..1, from exact integer sums."""
    counts = [0] * 256
    for value in pixels:
        counts[value] += 1
    n = len(pixels)
    total = sum(value * count for value, count in enumerate(counts))
    squares = sum(value * value * count for value, count in enumerate(counts))
    mean = total / n
    return mean / 255, math.sqrt(squares / n - mean * mean) / 255


def cut(part, folder, out):
    images = read(folder, f"{part}-images-idx3-ubyte")
    labels = read(folder, f"{part}-labels-idx1-ubyte")
    _, n, height, width = struct.unpack(">4I", images[:16])
    pixels, labels = images[16:], labels[8:]
    size = height * width

    taken = [0] * N_CLASSES
    chosen = []
    for index in range(n):
        if taken[labels[index]] < PER_CLASS[part]:
            taken[labels[index]] += 1
            chosen.append(index)
    assert taken == [PER_CLASS[part]] * N_CLASSES, taken

    sample = b"".join(pixels[i * size : (i + 1) * size] for i in chosen)
    header = struct.pack(">4I", 0x803, len(chosen), height, width)
    write(out, f"{part}-images-idx3-ubyte", header + sample)
    write(out, f"{part}-labels-idx1-ubyte", struct.pack(">2I", 0x801, len(chosen)) + bytes(labels[i] for i in chosen))
    print(f"{part}: full mean %.6f std %.6f" % statistics(pixels))
    print(f"{part}: sample mean %.6f std %.6f" % statistics(sample))


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    out = pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else pathlib.Path(__file__).parent
    out.mkdir(parents=True, exist_ok=True)
    for part in PER_CLASS:
        cut(part, folder, out)


if __name__ == "__main__":
    main()
