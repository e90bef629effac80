"""The case of `cpu_vgg11` in PyTorch on the CPU: VGG-11's convolutions on 32x32 images, batch 64, one linear layer."""
import argparse, json, time, torch, torch.nn as nn
import torch.nn.functional as F

p = argparse.ArgumentParser()
p.add_argument("--threads", type=int, default=2)
p.add_argument("--steps", type=int, default=20)
a = p.parse_args()
torch.set_num_threads(a.threads)
layers, c = [], 3
for out in [64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0]:
    layers += [nn.MaxPool2d(2)] if out == 0 else [nn.Conv2d(c, out, 3, padding=1), nn.ReLU(inplace=True)]
    c = out or c


def run(channels_last):
    torch.manual_seed(0)
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10))
    x, y = torch.randn(64, 3, 32, 32), torch.arange(64) % 10
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    times = []
    for step in range(a.steps + 3):
        t = time.perf_counter()
        opt.zero_grad(set_to_none=True)
        F.cross_entropy(model(x), y).backward()
        opt.step()
        if step >= 3:
            times.append((time.perf_counter() - t) * 1e3)
    times.sort()
    print(json.dumps(dict(program="pytorch " + torch.__version__, channels_last=channels_last, threads=a.threads,
                          ms_median=times[len(times) // 2], ms_min=times[0], ms_p90=times[int(len(times) * 0.9)])), flush=True)


run(False)
run(True)
