"""Hooks of every kind and form that keep the values they get, in every kind of container."""

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


def on_all_modules(register):
    return lambda _program, hook: getattr(all_modules, register)(hook)


def on_state_dict(method):
    def register(program, hook):
        program.before_call = torch.compiler.disable(lambda: program.model.load_state_dict(program.model.state_dict()))
        return getattr(program.model, method)(hook)

    return register


def on_inner_tensor(program, hook):
    program.inside_call = lambda y: y.register_hook(hook)


def on_several_gradients(program, hook):
    return torch.autograd.graph.register_multi_grad_hook([program.weight, program.model[0].weight], hook, mode="any")


def on_saved_tensors(pack, unpack):
    """Return a function that registers a hook, which returns nothing, as pack or unpack hook of saved tensors."""

    def register(program, hook):
        def call_hook(value):
            hook(value)
            return value.detach() if pack else value

        program.saving = torch.autograd.graph.saved_tensors_hooks(
            call_hook if pack else (lambda value: value.detach()), call_hook if unpack else (lambda value: value)
        )

    return register


KINDS = {
    "forward": on_module("register_forward_hook"),
    "forward of the whole": on_module("register_forward_hook", lambda model: model),
    "forward with keywords": lambda program, hook: program.model[1].register_forward_hook(hook, with_kwargs=True),
    "forward in any case": lambda program, hook: program.model[1].register_forward_hook(hook, always_call=True),
    "forward pre": on_module("register_forward_pre_hook"),
    "full backward": on_module("register_full_backward_hook"),
    "full backward pre": on_module("register_full_backward_pre_hook"),
    "backward": on_module("register_backward_hook", lambda model: model[0]),
    "state dict": on_state_dict("register_state_dict_post_hook"),
    "state dict pre": on_state_dict("register_state_dict_pre_hook"),
    "load state dict": on_state_dict("register_load_state_dict_post_hook"),
    "load state dict pre": on_state_dict("register_load_state_dict_pre_hook"),
    "leaf": on_tensor("weight"),
    "parameter": lambda program, hook: program.model[0].weight.register_hook(hook),
    "made before": on_tensor("made"),
    "made inside": on_inner_tensor,
    "several gradients": on_several_gradients,
    "accumulated": on_tensor("weight", "register_post_accumulate_grad_hook"),
    "forward of all": on_all_modules("register_module_forward_hook"),
    "forward pre of all": on_all_modules("register_module_forward_pre_hook"),
    "full backward of all": on_all_modules("register_module_full_backward_hook"),
    "full backward pre of all": on_all_modules("register_module_full_backward_pre_hook"),
    "packed": on_saved_tensors(pack=True, unpack=False),
    "unpacked": on_saved_tensors(pack=False, unpack=True),
}
"""Registers a hook of each kind in a program; returns a handle that removes it, if there is one."""


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


class ListSubclass(list[Any]):
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


def in_tensor_of_list():
    kept = [torch.zeros(4)]

    def keep(_value):
        kept[0] = kept[0] + 1

    def read():
        return kept[0].tolist()

    return keep, read


def holder(make, keep, read=repr):
    def make_holder():
        kept = make()
        return functools.partial(keep, kept), functools.partial(read, kept)

    return make_holder


def count_weakly(kept, _value):
    kept[Slot] = kept.get(Slot, 0) + 1


HOLDERS = {
    "list": holder(list, lambda kept, value: kept.append(value), len),
    "item": holder(dict, lambda kept, value: kept.update({len(kept): value}), len),
    "list of a dict": holder(lambda: defaultdict(list, a=[]), lambda kept, value: kept["a"].append(value)),
    "count": holder(Counter, lambda kept, _: kept.update("a")),
    "set": holder(set, lambda kept, _: kept.add(len(kept)), sorted),
    "deque": holder(lambda: deque(maxlen=2), lambda kept, _: kept.append(object()), list),
    "attribute": holder(lambda: SimpleNamespace(n=0), lambda kept, _: setattr(kept, "n", kept.n + 1)),
    "slot": holder(Slot, lambda kept, _: setattr(kept, "n", kept.n + 1), lambda kept: kept.n),
    "list of another class": holder(ListSubclass, ListSubclass.keep, len),
    "dict in an object": holder(UserDict, lambda kept, value: kept.update({len(kept): value}), len),
    "list in an object": holder(UserList, lambda kept, value: kept.append(value), len),
    "queue": holder(queue.Queue, queue.Queue.put, queue.Queue.qsize),
    "weak keys": holder(weakref.WeakKeyDictionary, count_weakly, lambda kept: list(kept.values())),
    "array": holder(lambda: np.zeros(3), lambda kept, _: kept.__iadd__(1)),
    "closure": in_closure,
    "global": in_global,
    "default": in_default,
    "function": in_function,
    "tensor": in_tensor,
    "tensor of a list": in_tensor_of_list,
}
"""Makes, per kind of container, a function that keeps something of a value, and one that returns what is kept."""


class CallableObject:
    def __init__(self, keep):
        self.keep = keep

    def __call__(self, *args, **_):
        self.keep(args[-1])

    def method(self, *args, **_):
        self.keep(args[-1])


def as_function(keep):
    def hook(*args, **_):
        keep(args[-1])

    return hook


def as_partial(keep):
    return functools.partial(lambda keep, *args, **_: keep(args[-1]), keep)


FORMS = {
    "function": as_function,
    "decorated": lambda keep: torch.no_grad()(as_function(keep)),
    "method": lambda keep: CallableObject(keep).method,
    "object": CallableObject,
    "partial": as_partial,
}
"""Makes a hook of each form of a function that keeps something."""
