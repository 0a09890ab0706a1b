"""The cells of a notebook with a panel of two regions, and one of none."""

SETUP = """
%load_ext regional_explorer
import torch
import regional_explorer as rx

def f(x, w):
    with rx.region("mlp", max_fusion_size=8):
        h = torch.relu(x @ w) * 2
    with rx.region("softmax"):
        return torch.softmax(h, -1).mean(0)

x, w = torch.randn(32, 32), torch.randn(32, 32)
net = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.GELU())
"""
CELLS = [
    SETUP,
    "%regional_compile --no-bench -o ex f(x, w)",
    "%regional_compile --no-bench -o bare net(x)",
]
