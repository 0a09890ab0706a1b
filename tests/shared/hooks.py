"""Hooks of every kind, in every form, that keep what they see in every kind of container."""

import contextlib
import functools
import queue
import weakref
from collections import Counter, UserDict, UserList, defaultdict, deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules import module as all_modules

NUMBER = 0


class Program:
    """A model and tensors that hooks are registered on, and a call that all of them run in."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        self.weight = torch.ones(4, requires_grad=True)
        self.made = torch.ones(4, requires_grad=True) * 2
        self.saving = contextlib.nullcontext()
        self.before_call = lambda: None
        self.inside_call = lambda y: None

    def __call__(self, x):
        model, weight, made = self.model, self.weight, self.made
        with self.saving:
            self.before_call()
            y = model(x) * weight
            self.inside_call(y)
            return (y * made).exp().sum()


def on_module(register, of=lambda model: model[1]):
    return lambda program, hook: getattr(of(program.model), register)(hook)


def on_tensor(name, register="register_hook"):
    return lambda program, hook: getattr(getattr(program, name), register)(hook)


def for_all(register):
    return lambda _program, hook: getattr(all_modules, register)(hook)


def of_state_dict(register):
    def registered(program, hook):
        program.before_call = torch.compiler.disable(lambda: program.model.load_state_dict(program.model.state_dict()))
        return getattr(program.model, register)(hook)

    return registered


def inside(program, hook):
    program.inside_call = lambda y: y.register_hook(hook)


def of_several(program, hook):
    return torch.autograd.graph.register_multi_grad_hook([program.weight, program.model[0].weight], hook, mode="any")


def around(pack, unpack):
    """Make hooks of what autograd saves of one that returns nothing."""

    def registered(program, hook):
        def called(value):
            hook(value)
            return value.detach() if pack else value

        program.saving = torch.autograd.graph.saved_tensors_hooks(
            called if pack else (lambda value: value.detach()), called if unpack else (lambda value: value)
        )

    return registered


KINDS = {
    "forward": on_module("register_forward_hook"),
    "forward of the whole": on_module("register_forward_hook", lambda model: model),
    "forward with keywords": lambda program, hook: program.model[1].register_forward_hook(hook, with_kwargs=True),
    "forward in any case": lambda program, hook: program.model[1].register_forward_hook(hook, always_call=True),
    "forward pre": on_module("register_forward_pre_hook"),
    "full backward": on_module("register_full_backward_hook"),
    "full backward pre": on_module("register_full_backward_pre_hook"),
    "backward": on_module("register_backward_hook", lambda model: model[0]),
    "state dict": of_state_dict("register_state_dict_post_hook"),
    "state dict pre": of_state_dict("register_state_dict_pre_hook"),
    "load state dict": of_state_dict("register_load_state_dict_post_hook"),
    "load state dict pre": of_state_dict("register_load_state_dict_pre_hook"),
    "leaf": on_tensor("weight"),
    "parameter": lambda program, hook: program.model[0].weight.register_hook(hook),
    "made before": on_tensor("made"),
    "made inside": inside,
    "several gradients": of_several,
    "accumulated": on_tensor("weight", "register_post_accumulate_grad_hook"),
    "forward of all": for_all("register_module_forward_hook"),
    "forward pre of all": for_all("register_module_forward_pre_hook"),
    "full backward of all": for_all("register_module_full_backward_hook"),
    "full backward pre of all": for_all("register_module_full_backward_pre_hook"),
    "packed": around(pack=True, unpack=False),
    "unpacked": around(pack=False, unpack=True),
}
"""How each kind of hook is registered in a program; what is returned, if anything, can be removed."""


@contextlib.contextmanager
def registered(kind, program, hook):
    handle = KINDS[kind](program, hook)
    flag = all_modules._global_is_full_backward_hook
    try:
        yield
    finally:
        if handle is not None:
            handle.remove()
        all_modules._global_is_full_backward_hook = None if "of all" in kind else flag


class Lists(list[Any]):
    def append(self, value):
        raise NotImplementedError

    def keep(self, value):
        super().append(value)


class Slot:
    __slots__ = ("n",)

    def __init__(self):
        self.n = 0


def in_closure():
    kept = 0

    def keep(_value):
        nonlocal kept
        kept += 1

    return keep, lambda: kept


def in_global():
    def keep(_value):
        global NUMBER  # noqa: PLW0603 - what is tested
        NUMBER += 1

    return keep, lambda: NUMBER


def in_default():
    def keep(value, kept=[]):  # noqa: B006 - what is tested
        kept.append(value)

    return keep, lambda: list(keep.__defaults__[0])


def in_function():
    def keep(_value):
        keep.calls += 1

    keep.calls = 0
    return keep, lambda: keep.calls


def in_tensor():
    kept = torch.zeros(4)

    @torch.no_grad()
    def keep(_value):
        kept.mul_(0.5).add_(1)

    return keep, kept.tolist


def in_lists_tensor():
    kept = [torch.zeros(4)]

    def keep(_value):
        kept[0] = kept[0] + 1

    def read():
        return kept[0].tolist()

    return keep, read


def held_by(make, keep, read=repr):
    def made():
        kept = make()
        return functools.partial(keep, kept), functools.partial(read, kept)

    return made


def count_weakly(kept, _value):
    kept[Slot] = kept.get(Slot, 0) + 1


HOLDERS = {
    "list": held_by(list, lambda kept, value: kept.append(value), len),
    "item": held_by(dict, lambda kept, value: kept.update({len(kept): value}), len),
    "list of a dict": held_by(lambda: defaultdict(list, a=[]), lambda kept, value: kept["a"].append(value)),
    "count": held_by(Counter, lambda kept, _: kept.update("a")),
    "set": held_by(set, lambda kept, _: kept.add(len(kept)), sorted),
    "deque": held_by(lambda: deque(maxlen=2), lambda kept, _: kept.append(object()), list),
    "attribute": held_by(lambda: SimpleNamespace(n=0), lambda kept, _: setattr(kept, "n", kept.n + 1)),
    "slot": held_by(Slot, lambda kept, _: setattr(kept, "n", kept.n + 1), lambda kept: kept.n),
    "list of another class": held_by(Lists, Lists.keep, len),
    "dict in an object": held_by(UserDict, lambda kept, value: kept.update({len(kept): value}), len),
    "list in an object": held_by(UserList, lambda kept, value: kept.append(value), len),
    "queue": held_by(queue.Queue, queue.Queue.put, queue.Queue.qsize),
    "weak keys": held_by(weakref.WeakKeyDictionary, count_weakly, lambda kept: list(kept.values())),
    "array": held_by(lambda: np.zeros(3), lambda kept, _: kept.__iadd__(1)),
    "closure": in_closure,
    "global": in_global,
    "default": in_default,
    "function": in_function,
    "tensor": in_tensor,
    "tensor of a list": in_lists_tensor,
}
"""How a function that keeps something of a value is made, with one that tells what is kept."""


class Called:
    def __init__(self, keep):
        self.keep = keep

    def __call__(self, *args, **_):
        self.keep(args[-1])

    def method(self, *args, **_):
        self.keep(args[-1])


def of_function(keep):
    def hook(*args, **_):
        keep(args[-1])

    return hook


def of_partial(keep):
    return functools.partial(lambda keep, *args, **_: keep(args[-1]), keep)


FORMS = {
    "function": of_function,
    "decorated": lambda keep: torch.no_grad()(of_function(keep)),
    "method": lambda keep: Called(keep).method,
    "object": Called,
    "partial": of_partial,
}
"""How a hook is made of a function that keeps something."""
