"""The paper's ten networks under every policy on the modelled Titan X: peak, bytes moved, slowdown over the oracle.

Usage: python3 benches/paper_tables.py path/to/vdnn [folder]; writes paper-titan-x.json and paper-titan-x.md there.
Momentum 0, event-based waits, cost-based prefetch, no budget but for dyn, which gets the card's 12 GiB."""
import json, subprocess, sys

vdnn, folder = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "benches/results"
networks = [("alexnet", 128), ("overfeat-fast", 128), ("googlenet", 128), ("vgg16", 64), ("vgg16", 128), ("vgg16", 256),
            ("vgg-116", 32), ("vgg-216", 32), ("vgg-316", 32), ("vgg-416", 32)]
runs = [(p, None) for p in ("baseline", "none", "all-m", "all-p", "conv-m", "conv-p")] + [("dyn", "12GiB")]
rows = []
for model, batch in networks:
    for policy, budget in runs:
        command = [vdnn, "plan", "--model", model, "--batch-size", str(batch), "--machine", "titan-x", "--momentum", "0",
                   "--policy", policy, "--json"] + (["--budget", budget] if budget else [])
        done = subprocess.run(command, capture_output=True, text=True)
        rows.append(dict(json.loads(done.stdout), model=model, policy=policy, batch=batch))
with open(f"{folder}/paper-titan-x.json", "w") as out:
    json.dump(rows, out, indent=1)
    out.write("\n")
with open(f"{folder}/paper-titan-x.md", "w") as out:
    out.write("# The paper's networks on the modelled Titan X\n\nMade by `benches/paper_tables.py`. GB = 10⁹ bytes; slowdown over the "
              "sum of the fastest kernels.\n\n| network (batch) | policy | peak GB | host GB | moved each way GB | step ms | slowdown |\n"
              "| --- | --- | --- | --- | --- | --- | --- |\n")
    for r in rows:
        name = f"{r['model']} ({r['batch']})"
        if "error" in r:
            out.write(f"| {name} | {r['policy']} | floor {r['floor_bytes']/1e9:.2f}: does not fit | | | | |\n")
            continue
        slow = (r["predicted_ms"] / r["oracle_ms"] - 1) * 100
        fits = "" if r["peak_bytes"] <= 12 << 30 else " (over 12 GiB)"
        out.write(f"| {name} | {r['policy']} | {r['peak_bytes']/1e9:.2f}{fits} | {r['host_peak_bytes']/1e9:.2f} | "
                  f"{r['offload_bytes']/1e9:.2f} | {r['predicted_ms']:.0f} | {slow:.1f} % |\n")
