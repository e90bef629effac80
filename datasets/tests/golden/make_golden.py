"""Makes the JPEGs that tests/all/images.rs reads, and what Pillow makes of them: the shorter side scaled to size * 256 // 224, the
middle size x size pixels, as torchvision's Resize and CenterCrop do.

    python make_golden.py          # needs pillow and numpy; writes NAME.jpg and NAME.SIZE.rgb ([3, SIZE, SIZE]) beside itself
"""

import pathlib

import numpy as np
from PIL import Image

HERE = pathlib.Path(__file__).parent


def picture(height, width, channels):
    """Smooth, so that decoders, which may differ by a little at edges, agree; with a few edges all the same."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [127.5 + 90 * np.sin(x / (9 + 5 * c) + c) * np.cos(y / (13 - 3 * c)) + (30 if c == 0 else 0) * (x > width // 2)
              for c in range(channels)]
    return np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)


def expected(image, size):
    image = image.convert("RGB")
    shorter, (w, h) = -(-size * 256 // 224), image.size
    scaled = (shorter, int(shorter * h / w)) if w <= h else (int(shorter * w / h), shorter)
    image = image.resize(scaled, Image.BILINEAR)
    left, top = (int(round((side - size) / 2)) for side in scaled)
    return np.asarray(image.crop((left, top, left + size, top + size))).transpose(2, 0, 1)


for name, shape, size, options in [("wide", (60, 97, 3), 28, {"subsampling": 0}), ("high", (150, 64, 3), 56, {"subsampling": 2}),
                                   ("grey", (40, 50, 1), 32, {}), ("small", (20, 17, 3), 28, {"subsampling": 0, "progressive": True})]:
    pixels = picture(*shape)
    image = Image.fromarray(pixels if shape[2] == 3 else pixels[..., 0])
    image.save(HERE / f"{name}.jpg", quality=92, **options)
    (HERE / f"{name}.{size}.rgb").write_bytes(np.ascontiguousarray(expected(Image.open(HERE / f"{name}.jpg"), size)).tobytes())
