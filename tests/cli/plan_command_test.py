#!/usr/bin/env python3
"""Plans as a person asks for them: a trace that adds up by a program that knows nothing of the planner, a file that is
proven and one that was edited and is not, a page, suggestions, and refusals.
usage: plan_command_test.py LOCKSTEP REPOSITORY
"""

import json
import pathlib
import subprocess
import sys
import tempfile

LOCKSTEP, REPOSITORY = sys.argv[1], pathlib.Path(sys.argv[2])
MODEL = ["--model", str(REPOSITORY / "models/tutor-deepseek-v3")]
MODES = [
    "--tp-size 4 --dp-size 4 --enable-dp-attention --ep-size 4 --moe-a2a-backend in_process",
    "--tp-size 8 --dp-size 4 --enable-dp-attention --ep-size 2 --moe-dp-size 2 --moe-dense-tp-size 2",
    "--tp-size 8 --dp-size 4 --enable-dp-attention --attn-cp-size 2 --embedding-tp-size 8 --shared-experts whole",
    "--tp-size 4 --dp-size 4 --enable-dp-attention --lm-head-tp-size 2 --disable-pass choose_layouts",
    "--tp-size 4 --dp-size 4 --enable-dp-attention --disable-pass trade_bytes_for_latency",
]


def run(*words, code=0):
    done = subprocess.run([LOCKSTEP, *words], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == code, f"{words}: {done.returncode} instead of {code}\n{done.stdout}\n{done.stderr}"
    return done


def check_trace(plan):
    trace = plan["trace"]
    assert len(trace) == plan["grid"]["num_ranks"]
    for steps in trace:
        assert len(steps) == len(trace[0])
        for at, step in enumerate(steps):
            members = [trace[member][at] for member in step["group"]]
            assert step["group"] == sorted(step["group"]) and len(step["counts"]) == len(step["group"])
            for member in members:
                assert all(member[key] == step[key] for key in ("edge", "op", "group", "counts")), step
            if step["op"] == "all_gather":
                assert step["rows_out"] == sum(step["counts"]) and [m["rows_in"] for m in members] == step["counts"]
            if step["op"] in ("reduce_scatter", "columns_to_rows"):
                assert step["rows_in"] == sum(step["counts"]) and [m["rows_out"] for m in members] == step["counts"]
            if step["op"] in ("all_reduce", "fused_all_reduce_add_norm"):
                assert len(set(step["counts"])) == 1 and step["rows_in"] == step["rows_out"]
            if "capacity" in step:
                assert max(step["counts"]) <= step["capacity"]
            if len(step["group"]) == 1:
                assert step["bytes"] == 0


def check_machine_file():
    """Measured, written, and read by every command that plans; a broken one is refused by all, before anything else."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "machine.json"
        run("doctor", "--measure", "--tp-size", "2", "--output", str(file))
        measured = json.loads(file.read_text())
        assert [world["ranks"] for world in measured["worlds"]] == [1, 2] and measured["sources"], measured
        assert all(value > 0 for world in measured["worlds"] for value in world.values()), measured
        machine = ["--machine", str(file)]
        plan = json.loads(run("plan", *MODEL, "--tp-size", "2", *machine, "--json").stdout)
        assert plan["machine"] == measured["name"], plan["machine"]
        best = json.loads(run("plan", *MODEL, "--suggest", *machine, "--context", "64", "--json").stdout)["suggestions"]
        assert all("--tp-size 2" in one["launch"] and str(file) in one["launch"] for one in best), best
        run("verify", *MODEL, "--tp-size", "2", *machine)
        run("verify", "--worlds", "2", *machine)
        run("generate", *MODEL, "--tp-size", "2", *machine, "--prompt", "1 + 1 =", "--max-tokens", "1")
        measured["worlds"][1]["link_gbs"] = -3
        file.write_text(json.dumps(measured))
        for command in (("plan", *MODEL), ("verify", *MODEL), ("verify", "--worlds", "2"), ("serve", *MODEL),
                        ("plan", *MODEL, "--suggest")):
            refused = run(*command, *machine, code=2).stderr
            assert "link_gbs" in refused and "-3" in refused and str(file) in refused, refused
        assert "machine.jso" in run("plan", *MODEL, "--machine", folder + "/machine.jso", code=2).stderr


def with_steps(plan):
    """The first edge on which anything happens."""
    return next(edge for edge in plan["edges"] if edge["steps"])


def main():
    with tempfile.TemporaryDirectory() as folder:
        file, page = pathlib.Path(folder) / "plan.json", pathlib.Path(folder) / "plan.html"
        for mode in MODES:
            for phase in ("decode", "prefill"):
                plan = json.loads(run("plan", *MODEL, *mode.split(), "--rows", "3,0,5,1", "--phase", phase, "--json").stdout)
                check_trace(plan)
                file.write_text(json.dumps(plan))
                assert json.loads(run("verify", "--plan", str(file), "--json").stdout)["violations"] == []
        edits = {
            "a step is lost": lambda p: with_steps(p["decode"])["steps"].pop(0),
            "one count": lambda p: p["step_plan"]["rows_per_home"].__setitem__(0, 7),
            "the geometry": lambda p: p["step_plan"].__setitem__("max_rows_of_any_home", 1),
            "a rank's trace": lambda p: p["trace"][1].pop(),
            "bytes of a step": lambda p: with_steps(p["prefill"])["steps"][-1].__setitem__("bytes", 3),
            "microseconds of an edge": lambda p: with_steps(p["decode"]).__setitem__("us", 0.5),
            "microseconds of a plan": lambda p: p["decode"].__setitem__("us", 0.5),
            "what binds a step": lambda p: with_steps(p["decode"])["steps"][0].__setitem__("bound_by", "nothing"),
            "bytes of the prior art": lambda p: p["decode"]["layers"][0].__setitem__("prior_art_bytes", 0.5),
            "a setting": lambda p: p["settings"][0].__setitem__("value", "16"),
            "memory": lambda p: p["memory"].__setitem__("weight_bytes", 7),
            "a flag": lambda p: p["configuration"]["flags"].__setitem__("ep_size", 2),
            "a limit": lambda p: p["configuration"]["capacity"].__setitem__("max_requests", 13),
            "flags that contradict each other": lambda p: p["configuration"]["flags"].__setitem__("dp_size", 3),
            "a constant of the machine": lambda p: p["configuration"]["machine"].__setitem__("link_gbs", 1),
        }
        for name, edit in edits.items():
            edited = json.loads(file.read_text())
            edit(edited)
            other = pathlib.Path(folder) / "edited.json"
            other.write_text(json.dumps(edited))
            found = json.loads(run("verify", "--plan", str(other), "--json", code=1).stdout)["violations"]
            assert found and found[0]["says"], name
        file.write_text("{\"configuration\": 3}")
        assert "configuration" in run("verify", "--plan", str(file), code=2).stderr
        draft = json.loads(run("plan", *MODEL, "--tp-size", "2", "--speculative-algorithm", "NEXTN", "--json").stdout)
        file.write_text(json.dumps(draft))
        assert json.loads(run("verify", "--plan", str(file), "--json").stdout)["violations"] == []
        draft["draft"]["decode"]["edges"][0]["us"] = 77
        file.write_text(json.dumps(draft))
        assert "draft decode" in run("verify", "--plan", str(file), code=1).stdout
        drafting = ["--tp-size", "2", "--speculative-algorithm", "NEXTN"]
        assert "drafts' decode plan" in run("plan", *MODEL, *drafting, "--explain").stdout
        run("plan", *MODEL, *drafting, "--html", str(page))
        assert "The same of drafts" in page.read_text() and "join" in page.read_text()
        run("plan", *MODEL, *MODES[0].split(), "--html", str(page))
        text = page.read_text()
        assert "TP_ATTN_FULL" in text and "http" not in text, "the page is complete in itself"
    assert "names 2 replicas" in run("plan", *MODEL, *MODES[0].split(), "--rows", "3,0", code=2).stderr
    shapes = REPOSITORY / "benchmarks/models"
    for model, machine in (("deepseek-v3", "8xH200"), ("qwen3-30b-a3b", "2xH200"), ("qwen3.5-397b-a17b", "8xH200")):
        for objective in ("throughput", "latency"):
            answer = run("plan", "--model", str(shapes / model), "--suggest", "--machine", machine, "--objective",
                         objective, "--json")
            best = json.loads(answer.stdout)["suggestions"]
            assert len(best) == 3 and all(0 < one["total_gb"] < 144 for one in best), best
    assert "more ranks" in run("plan", "--model", str(shapes / "deepseek-v3"), "--suggest", "--machine", "2xH200", code=2).stderr
    assert "of the model" in run("plan", *MODEL, "--suggest", "--context", "100000", code=2).stderr
    assert "different numbers" in run("plan", *MODEL, "--tp-size", "4", "--machine", "8xH200", code=2).stderr
    check_machine_file()
    assert "--moe-dp-size" in run("serve", *MODEL, "--ep-num-redundant-experts", "2", code=2).stderr
    tally = json.loads(run("verify", "--worlds", "4", "--json").stdout)
    assert tally["failures"] == [] and tally["proven"] > 2000, tally
    print(f"{tally['proven']} configurations of up to four ranks proven with {tally['proofs']} proofs")


main()
