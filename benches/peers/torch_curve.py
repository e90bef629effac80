"""Writes initial weights and batches as safetensors, then PyTorch's losses on them, five ways to show its own spread. With `reversed` and
`rolled` a batch has the same samples in another order, so the same loss but for rounding.

Arguments: MODEL BATCH FOLDER. SGD momentum 0.9, weight decay 1e-4, dropout 0, 4 batches of random data. From the environment:
PRECISION fp32 (strict) or bf16 (autocast, channels-last), STEPS, LR."""
import json, os, sys, torch, torchvision
import torch.nn.functional as F
from safetensors.torch import save_file

arch, batch, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
steps, lr, n_batches = int(os.environ.get("STEPS", "20")), float(os.environ.get("LR", "0.01")), 4
half = os.environ.get("PRECISION", "fp32") == "bf16"
os.makedirs(folder, exist_ok=True)
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
torch.manual_seed(0)
state = {k: v.clone() for k, v in getattr(torchvision.models, arch)(num_classes=1000).state_dict().items()}
save_file({k: v for k, v in state.items() if not k.endswith("num_batches_tracked")}, f"{folder}/weights.safetensors")
x = torch.randn(n_batches * batch, 3, 224, 224)
y = torch.randint(0, 1000, (n_batches * batch,), dtype=torch.int32)
save_file({"images": x, "labels": y}, f"{folder}/batches.safetensors")


def curve(benchmark, deterministic, order=lambda samples: samples):
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = benchmark, deterministic
    model = getattr(torchvision.models, arch)(num_classes=1000)
    model.load_state_dict(state)
    for m in model.modules():
        if isinstance(m, torch.nn.Dropout):
            m.p = 0.0
    model = model.cuda().train()
    if half:
        model = model.to(memory_format=torch.channels_last)
    opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4)
    losses = []
    for step in range(steps):
        i = step % n_batches * batch
        opt.zero_grad(set_to_none=True)
        images, labels = order(x[i:i + batch]).cuda(), order(y[i:i + batch]).long().cuda()
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            logits = model(images.to(memory_format=torch.channels_last) if half else images)
            loss = F.cross_entropy(logits, labels)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses


runs = {"deterministic": curve(False, True), "default": curve(False, False), "benchmark": curve(True, False),
        "reversed": curve(False, False, lambda samples: samples.flip(0)), "rolled": curve(False, False, lambda samples: samples.roll(batch // 2, 0))}
print(json.dumps(dict(peer="pytorch " + torch.__version__, model=arch, batch=batch, precision="bf16" if half else "fp32", losses=runs)))
