#!/usr/bin/env bash
# Builds the sdist and the wheel into dist/, checks them, and uses the wheel in an empty environment:
#   scripts/check_dist.sh PYTHON CONSTRAINTS
# Environment and example lie in a temporary folder, so that nothing of the checkout can be imported.
set -euo pipefail
python=$1 constraints=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m venv "$work/tools"
"$work/tools/bin/pip" install --quiet --disable-pip-version-check build twine
rm -rf dist
"$work/tools/bin/python" -m build --outdir dist . >"$work/build.log" 2>&1 || { tail -n 20 "$work/build.log" >&2; exit 1; }
"$work/tools/bin/twine" check --strict dist/*

"$python" -m venv "$work/empty"
echo "Installing the wheel, without the notebook's packages, into an empty environment (several GB)."
"$work/empty/bin/pip" install --quiet --disable-pip-version-check -c "$constraints" dist/*.whl
cat >"$work/example.py" <<'PYTHON'
import torch
import regional_explorer as rx


def f(x, w):
    y = x @ w
    with rx.region("gelu"):
        y = torch.nn.functional.gelu(y)
    return y.sum()


ex = rx.explore(f, (torch.randn(64, 64), torch.randn(64, 64, requires_grad=True)))
ex.benchmark(budget_s=2)
print(ex.regions)
assert ex.regions.iloc[0]["numerics"] == "ok", ex.diagnostics
ex.save_plan("plan.json")
compiled = rx.compile(f, "plan.json")
compiled(torch.randn(64, 64), torch.randn(64, 64, requires_grad=True)).backward()
print(rx.status(compiled))
PYTHON
(cd "$work" && empty/bin/python example.py)
(cd "$work" && empty/bin/regional-explorer doctor)
echo "dist/ is ready: $(cd dist && ls | tr '\n' ' ')"
