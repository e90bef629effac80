"""Six networks at twelve budgets each, from the floor of `hybrid` to the peak of `none`, on the modelled Titan X: peak against
the budget and against the largest live set (other placements beside it), step time, gap to the lower bound, seconds of planning.

Usage: python3 benches/zoo_budgets.py path/to/vdnn [folder]; writes zoo-budgets-titan-x.{json,md} there. Every plan is checked by
`vdnn plan` itself. A step that grows with the budget, a peak over it, a gap over 10 % or an arena over 1.01 times the live set is
marked with a *."""
import json, subprocess, sys

vdnn, folder = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "benches/results"
networks = [("alexnet", 128), ("googlenet", 128), ("vgg16", 64), ("resnet50", 64), ("resnet152", 32), ("densenet121", 64)]
COUNT = 12


def plan(model, batch, *more):
    command = [vdnn, "plan", "--model", model, "--batch-size", str(batch), "--machine", "titan-x", "--json", *more]
    return json.loads(subprocess.run(command, capture_output=True, text=True).stdout)


rows = []
for model, batch in networks:
    most = plan(model, batch, "--policy", "none")["peak_bytes"]
    floor = plan(model, batch, "--policy", "hybrid", "--budget", "1MiB")["floor_bytes"]
    for part in range(COUNT):
        budget = floor + (most - floor) * part // (COUNT - 1)
        found = plan(model, batch, "--policy", "hybrid", "--budget", str(budget))
        keys = ("budget_bytes", "peak_bytes", "live_peak_bytes", "extent_bytes", "predicted_ms", "oracle_ms", "lower_bound_ms",
                "planning_seconds", "violations", "offload_bytes", "recompute_ms")
        rows.append({"model": model, "batch": batch, "part": part, **{key: found[key] for key in keys}})
        print(model, part, found["predicted_ms"], f"{found['planning_seconds']:.2f} s", file=sys.stderr, flush=True)
with open(f"{folder}/zoo-budgets-titan-x.json", "w") as out:
    json.dump(rows, out, indent=1)
    out.write("\n")


def marked(text, wrong):
    return text + ("*" if wrong else "")


with open(f"{folder}/zoo-budgets-titan-x.md", "w") as out:
    out.write(f"# `hybrid` at {COUNT} budgets on the modelled Titan X\n\nMade by `benches/zoo_budgets.py`; a * marks what should not "
              "be. Arena: extent over the largest live set, then what first fit and size classes would need for the same buffers.\n\n"
              "| network (batch) | budget GB | peak GB | arena | first fit | size class | step ms | over fastest kernels | over bound | "
              "planned in s |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
    before = None
    for r in rows:
        live, extent = r["live_peak_bytes"], r["extent_bytes"]
        gap = (r["predicted_ms"] / r["lower_bound_ms"] - 1) * 100
        rises = r["part"] > 0 and r["predicted_ms"] > before * (1 + 1e-9)
        before = r["predicted_ms"]
        cells = [f"{r['model']} ({r['batch']})", f"{r['budget_bytes']/1e9:.3f}",
                 marked(f"{r['peak_bytes']/1e9:.3f}", r["peak_bytes"] > r["budget_bytes"] or r["violations"]),
                 marked(f"{r['peak_bytes']/live:.4f}", r["peak_bytes"] > 1.01 * live), f"{extent['first_fit']/live:.3f}",
                 f"{extent['size_class']/live:.3f}", marked(f"{r['predicted_ms']:.1f}", rises),
                 f"{(r['predicted_ms']/r['oracle_ms']-1)*100:.1f} %", marked(f"{gap:.1f} %", gap > 10 and r["part"] * 4 >= COUNT - 1),
                 f"{r['planning_seconds']:.2f}"]
        out.write("| " + " | ".join(cells) + " |\n")
