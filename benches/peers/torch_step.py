"""PyTorch's training step, eager, data on the device: median of steps, peak memory; one JSON line per case.

Arguments: MODEL:BATCH:PRECISION ..., precision one of fp32 (strict), tf32. `--device cpu --image 32 --channels 3 --classes 10`
for the CPU."""
import argparse, json, time, torch, torchvision
import torch.nn.functional as F

p = argparse.ArgumentParser()
p.add_argument("cases", nargs="+")
p.add_argument("--device", default="cuda")
p.add_argument("--steps", type=int, default=20)
p.add_argument("--warmup", type=int, default=3)
p.add_argument("--image", type=int, default=224)
p.add_argument("--classes", type=int, default=1000)
p.add_argument("--threads", type=int, default=None)
a = p.parse_args()
if a.threads:
    torch.set_num_threads(a.threads)
torch.backends.cudnn.benchmark = True


def run(case):
    arch, batch, precision = case.split(":")
    batch, tf32, cuda = int(batch), precision == "tf32", a.device == "cuda"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    torch.manual_seed(0)
    model = getattr(torchvision.models, arch)(num_classes=a.classes).to(a.device)
    for m in model.modules():
        if isinstance(m, torch.nn.Dropout):
            m.p = 0.0
    x = torch.randn(batch, 3, a.image, a.image, device=a.device)
    y = torch.randint(0, a.classes, (batch,), device=a.device)
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, fused=cuda)
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    times = []
    for step in range(a.warmup + a.steps):
        if cuda:
            torch.cuda.synchronize()
        t = time.perf_counter()
        opt.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        loss.item()
        if step >= a.warmup:
            times.append((time.perf_counter() - t) * 1e3)
    times.sort()
    return dict(peer="pytorch " + torch.__version__, model=arch, batch=batch, precision=precision, device=a.device,
                ms_median=times[len(times) // 2], ms_min=times[0], ms_p90=times[int(len(times) * 0.9)],
                alloc_bytes=torch.cuda.max_memory_allocated() if cuda else None,
                reserved_bytes=torch.cuda.max_memory_reserved() if cuda else None)


for case in a.cases:
    print(json.dumps(run(case)), flush=True)
    if a.device == "cuda":
        torch.cuda.empty_cache()
