"""PyTorch's training step, data on the device: median of steps, peak memory, time to the first steps; one JSON line per case.

Arguments: MODEL:BATCH:PRECISION[:MODE] ...
MODEL      of torchvision, or vgg-N: VGG-16 with (N - 16) / 5 more convolutions in each of its five groups
PRECISION  fp32 (strict), tf32, bf16 or f16 (autocast with channels-last; f16 with a gradient scaler)
MODE       eager (unless given), compile, reduce-overhead or max-autotune (modes of torch.compile), budget=0.5
           (torch.compile under an activation memory budget), blocks (ResNets: every residual block checkpointed),
           segments (VGG: its features checkpointed in four)
`--device cpu --image 32 --classes 10` for the CPU."""
import argparse, json, pathlib, time, torch, torchvision
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torchvision.models import vgg

p = argparse.ArgumentParser()
p.add_argument("cases", nargs="+")
p.add_argument("--device", default="cuda")
p.add_argument("--steps", type=int, default=20)
p.add_argument("--warmup", type=int, default=3)
p.add_argument("--image", type=int, default=224)
p.add_argument("--classes", type=int, default=1000)
p.add_argument("--threads", type=int, default=None)
p.add_argument("--wait", metavar="FOLDER", help="after warm-up write CASE.ready there and time once CASE.go is there, so that several "
               "compile at once and are timed in turn")
a = p.parse_args()
if a.threads:
    torch.set_num_threads(a.threads)
torch.backends.cudnn.benchmark = True
cuda = a.device == "cuda"
half = {"bf16": torch.bfloat16, "f16": torch.float16}


def build(arch):
    extra = dict(aux_logits=False, init_weights=False) if arch == "googlenet" else {}
    if arch.startswith("vgg-"):
        more = (int(arch.removeprefix("vgg-")) - 16) // 5
        groups = zip((64, 128, 256, 512, 512), (2, 2, 3, 3, 3))
        layers = [layer for width, convs in groups for layer in [width] * (convs + more) + ["M"]]
        model = vgg.VGG(vgg.make_layers(layers), num_classes=a.classes, init_weights=False).to(a.device)
    else:
        model = getattr(torchvision.models, arch)(num_classes=a.classes, **extra).to(a.device)
    for m in model.modules():
        if isinstance(m, torch.nn.Dropout):
            m.p = 0.0
    return model


def forward(model, mode):
    """The function that is called, and what it is compiled with."""
    if mode.startswith("budget="):
        import torch._functorch.config as config
        config.activation_memory_budget = float(mode.removeprefix("budget="))
        return torch.compile(model)
    if mode in ("reduce-overhead", "max-autotune"):
        return torch.compile(model, mode=mode)
    if mode == "compile":
        return torch.compile(model)
    if mode == "segments":
        def segments(x):
            x = checkpoint_sequential(model.features, 4, x, use_reentrant=False)
            return model.classifier(torch.flatten(model.avgpool(x), 1))
        return segments
    if mode == "blocks":
        def blocks(x):
            x = model.maxpool(model.relu(model.bn1(model.conv1(x))))
            for stage in (model.layer1, model.layer2, model.layer3, model.layer4):
                for block in stage:
                    x = checkpoint(block, x, use_reentrant=False)
            return model.fc(torch.flatten(model.avgpool(x), 1))
        return blocks
    return model


def wait(case):
    folder = pathlib.Path(a.wait)
    (folder / f"{case}.ready").touch()
    while not (folder / f"{case}.go").exists():
        time.sleep(0.1)


def run(case):
    arch, batch, precision, mode = (case.split(":") + ["eager"])[:4]
    batch = int(batch)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "fp32"
    torch.manual_seed(0)
    model = build(arch)
    x = torch.randn(batch, 3, a.image, a.image, device=a.device)
    y = torch.randint(0, a.classes, (batch,), device=a.device)
    if precision in half:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, fused=cuda)
    call = forward(model, mode)
    scaler = torch.amp.GradScaler(a.device, enabled=precision == "f16")
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    times, start = [], time.perf_counter()
    again = a.warmup if a.wait else 0  # the clocks are a pause's
    for step in range(a.warmup + again + a.steps):
        if step == a.warmup:
            ready = time.perf_counter() - start
            if a.wait:
                wait(case)
        if step == a.warmup + again:
            if cuda:
                torch.cuda.reset_peak_memory_stats()
        if cuda:
            torch.cuda.synchronize()
        t = time.perf_counter()
        opt.zero_grad(set_to_none=True)
        with torch.autocast(a.device, half.get(precision, torch.bfloat16), enabled=precision in half):
            loss = F.cross_entropy(call(x), y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        loss.item()
        if step >= a.warmup + again:
            times.append((time.perf_counter() - t) * 1e3)
    times.sort()
    return dict(peer="pytorch " + torch.__version__, model=arch, batch=batch, precision=precision, mode=mode, device=a.device,
                ms_median=times[len(times) // 2], ms_min=times[0], ms_p90=times[int(len(times) * 0.9)], ready_seconds=ready,
                alloc_bytes=torch.cuda.max_memory_allocated() if cuda else None,
                reserved_bytes=torch.cuda.max_memory_reserved() if cuda else None)


for case in a.cases:
    try:
        print(json.dumps(run(case)), flush=True)
    except Exception as error:
        print(json.dumps(dict(case=case, error=repr(error)[:300])), flush=True)
    if cuda:
        torch._dynamo.reset()
        import torch._functorch.config as config
        config.activation_memory_budget = 1.0
        torch.cuda.empty_cache()
